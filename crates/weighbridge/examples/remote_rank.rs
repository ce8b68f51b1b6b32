//! Parameters to another process as they are read: a sink that takes bytes by `write`, and lends no memory.
//!
//! Each rank listens on a socket, as a process on another machine would; this one reads the checkpoint once a rank and sends
//! what the rank holds.
//!
//! `cargo run -p weighbridge --example remote_rank -- PATH TP`

#![allow(clippy::print_stdout, reason = "examples print what they show")]

use std::error::Error;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;

use weighbridge::load::{Destination, Options, Place, Sink};
use weighbridge::{LayoutKind, Mesh, PlanBuilder, Pool};

type Failure = Box<dyn Error + Send + Sync>;

/// The sending side: one connection, and where the planes of each parameter begin in the rank's memory.
struct Sender {
    stream: Mutex<TcpStream>,
    starts: Vec<Vec<u64>>,
    end: u64,
}

impl Sink<'static> for Sender {
    fn place(&mut self, param: &Place<'_>) -> Result<Destination<'static>, Failure> {
        self.starts.resize(param.index + 1, vec![]);
        for len in param.planes {
            self.end = self.end.next_multiple_of(64);
            self.starts[param.index].push(self.end);
            self.end += *len as u64;
        }
        Ok(Destination::Write)
    }

    fn write(&self, param: &Place<'_>, plane: usize, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        let start = self.starts[param.index][plane] + at;
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&start.to_le_bytes())?;
        stream.write_all(&(bytes.len() as u64).to_le_bytes())?;
        Ok(stream.write_all(bytes)?)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        stream.write_all(&u64::MAX.to_le_bytes())?;
        // The rank answers when it has everything.
        Ok(stream.read_exact(&mut [0])?)
    }
}

/// The receiving side: fills the rank's memory, and returns it when the sender has finished.
fn receive(listener: &TcpListener, mut memory: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let (mut stream, _) = listener.accept()?;
    let mut reader = BufReader::with_capacity(1 << 20, stream.try_clone()?);
    loop {
        let start = number(&mut reader)?;
        if start == u64::MAX {
            stream.write_all(&[1])?;
            return Ok(memory);
        }
        let (start, len) = (usize::try_from(start)?, usize::try_from(number(&mut reader)?)?);
        let there = memory.get_mut(start..start + len).ok_or("beyond this rank's memory")?;
        reader.read_exact(there)?;
    }
}

fn number(reader: &mut impl Read) -> Result<u64, Failure> {
    let mut bytes = [0; 8];
    reader.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("wanted a checkpoint")?;
    let tp = args.next().and_then(|n| n.to_str()?.parse().ok()).unwrap_or(2);
    let checkpoint = weighbridge::open(path)?;
    let mesh = Mesh { tp, ..Mesh::default() };
    let ranks = PlanBuilder::new(&checkpoint).layout(LayoutKind::Canonical).mesh(mesh).ranks()?;
    let mut pool = Pool::new(2);
    for rank in 0..ranks.count() {
        let plan = ranks.plan(rank)?;
        let held = plan.needs(Options { owned: true, ..Options::default() }, pool.threads())?.owned;
        let memory = vec![0; usize::try_from(held)? + 64 * plan.params().len()];
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = Mutex::new(TcpStream::connect(listener.local_addr()?)?);
        let receiver = thread::spawn(move || receive(&listener, memory));
        let mut sender = Sender { stream, starts: vec![], end: 0 };
        let report = plan.load_into(&mut sender, &mut pool, Options::default())?;
        let memory = receiver.join().map_err(|_| "the receiver panicked")??;
        // The rank's bytes equal those of a load here.
        let here = plan.load(&mut pool)?;
        for (param, starts) in plan.params().iter().zip(&sender.starts) {
            let tensor = here.get(&param.name).ok_or("a parameter is missing")?;
            for (slot, start) in tensor.slots().iter().zip(starts) {
                let start = usize::try_from(*start)?;
                if memory[start..][..slot.bytes().len()] != *slot.bytes() {
                    return Err(format!("`{}` differs", param.name).into());
                }
            }
        }
        println!("rank {rank}: {} parameters, {held} bytes sent, the same as loaded here", report.params);
    }
    Ok(())
}
