//! `weighbridge pull`: models of the Hugging Face Hub.

use std::io::Write;

use hub::{Hub, HubName};

use crate::args::PullArgs;
use crate::failure::{Failure, INTERRUPTED};
use crate::json;
use crate::progress::{self, note};
use crate::pulling::{pull, said};

pub(crate) fn run(args: &PullArgs) -> Result<(), Failure> {
    let names =
        args.names.iter().map(|name| parse(name, args.revision.as_deref())).collect::<Result<Vec<_>, _>>()?;
    let builder = Hub::builder()?;
    let hub = if args.offline { builder.offline(true) } else { builder }.build();
    // What has arrived is on the disk, and the next pull continues.
    let _ = ctrlc::set_handler(|| {
        progress::clear();
        std::process::exit(i32::from(INTERRUPTED));
    });
    let mut all = vec![];
    for name in names {
        let (pulled, seconds) = pull(&hub, &name)?;
        note(&said(&pulled, seconds));
        if !args.json {
            writeln!(std::io::stdout().lock(), "{}", pulled.path.display())?;
        }
        all.push(json::Pulled::of(&name, &pulled, seconds));
    }
    if args.json {
        json::print(&json::Pull { pulled: all })?;
    }
    Ok(())
}

/// A name as it was typed: `hf:` may be left out.
fn parse(name: &str, revision: Option<&str>) -> Result<HubName, Failure> {
    let name =
        if HubName::is_meant(name) { HubName::parse(name)? } else { HubName::parse(&format!("hf:{name}"))? };
    Ok(match revision {
        Some(revision) => name.at(revision)?,
        None => name,
    })
}
