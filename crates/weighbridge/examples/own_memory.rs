//! Parameters into memory that the caller has already: a sink says where each plane goes.
//!
//! `cargo run -p weighbridge --example own_memory -- PATH`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

use weighbridge::load::{self, Destination, Place, Sink};
use weighbridge::{LayoutKind, PlanBuilder, Pool};

/// One parameter after the other.
struct Packed<'m> {
    rest: &'m mut [u8],
    there: AtomicUsize,
}

impl<'m> Sink<'m> for Packed<'m> {
    fn place(&mut self, param: &Place<'_>) -> Result<Destination<'m>, Box<dyn Error + Send + Sync>> {
        let mut planes = vec![];
        for len in param.planes {
            let gap = self.rest.as_ptr().align_offset(param.align);
            let rest =
                std::mem::take(&mut self.rest).split_at_mut_checked(gap).ok_or("the memory is full")?.1;
            let (plane, rest) = rest.split_at_mut_checked(*len).ok_or("the memory is full")?;
            self.rest = rest;
            planes.push(plane);
        }
        Ok(Destination::Memory(planes))
    }

    fn done(&self, _: &Place<'_>) {
        self.there.fetch_add(1, Ordering::Relaxed);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("wanted a checkpoint")?;
    let checkpoint = weighbridge::open(path)?;
    let plan = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).build()?;
    let bytes = plan.summary().slot_bytes + 64 * plan.params().len() as u64;
    let mut memory = vec![0; usize::try_from(bytes)?];
    let mut sink = Packed { rest: &mut memory, there: AtomicUsize::new(0) };
    let report = plan.load_into(&mut sink, &mut Pool::new(2), load::Options::default())?;
    println!("{} parameters of {} are there", sink.there.into_inner(), report.params);
    Ok(())
}
