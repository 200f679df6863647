//! stateright's own explorer.

use super::model::Model;
use crate::failure::Failure;
use crate::out::note;
use stateright::Model as _;
use std::net::{Ipv4Addr, TcpListener};

/// Serves the runs of `model` until the process is interrupted.
pub(super) fn run(model: Model, port: u16) -> Result<(), Failure> {
    // stateright panics where it cannot listen, and tells nobody which free port it was given.
    let found = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr());
    let address = found.map_err(|error| {
        Failure::failed(format!("listening at 127.0.0.1:{port}"), error, "give --serve another port")
    })?;
    note(format_args!("http://{address}/ has the runs of {}; interrupt to end", model.protocol.name()));
    model.checker().serve(address);
    Ok(())
}
