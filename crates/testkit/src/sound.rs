//! What every checkpoint that opens promises.

use checkpoint::{Checkpoint, Value};

/// What every open checkpoint promises.
pub fn assert_sound(checkpoint: &Checkpoint) {
    for entry in checkpoint.entries() {
        assert_eq!(checkpoint.entry(&entry.name), Some(entry));
        assert_eq!(entry.planes.len(), entry.scheme.planes.len());
        for plane in &entry.planes {
            assert!(plane.bytes.start <= plane.bytes.end);
            assert!(plane.bytes.end <= checkpoint.file(plane.file).len);
        }
    }
    if let Some(metadata) = checkpoint.metadata().gguf() {
        for (key, value) in metadata.iter() {
            assert_eq!(format!("{:?}", metadata.get(key)), format!("{:?}", Some(value)));
            if let Value::Array(array) = value {
                assert_eq!(array.values().count() as u64, array.len());
            }
            // None of these may panic, whatever the value.
            let _ = (metadata.u64(key), metadata.f64(key), metadata.bool(key), metadata.str(key));
            let _ = (metadata.strs(key).map(|s| s.map(Iterator::count)), metadata.f32s(key).map(|_| ()));
        }
    }
}

/// What one promises whose format has no ties and no strides: each byte belongs to one tensor at most.
pub fn assert_dense(checkpoint: &Checkpoint) {
    let mut ranges = Vec::new();
    for entry in checkpoint.entries() {
        assert_eq!(entry.scheme.byte_len(&entry.shape), Ok(entry.byte_len()));
        ranges.extend(entry.planes.iter().map(|p| (p.file, p.bytes.start, p.bytes.end)));
    }
    ranges.retain(|(_, start, end)| start < end);
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|w| w[0].0 != w[1].0 || w[0].2 <= w[1].1));
}
