//! The store of a bucket.

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::multipart::MultipartStore;

/// The store of a bucket, in the two ways in which it is asked.
#[derive(Clone)]
pub(crate) struct Cloud {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) parts: Arc<dyn MultipartStore>,
}

impl Cloud {
    pub(crate) fn of<S: ObjectStore + MultipartStore>(store: S) -> Cloud {
        let store = Arc::new(store);
        Cloud { store: Arc::clone(&store) as _, parts: store }
    }
}
