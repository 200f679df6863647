//! stateright's own explorer.

use super::model::Model;
use crate::failure::Failure;
use stateright::Model as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};

/// Serves it until the process is interrupted.
pub(super) fn run(model: Model, port: u16) -> Result<(), Failure> {
    let address = (Ipv4Addr::LOCALHOST, port);
    // stateright panics where it cannot listen.
    TcpListener::bind(address).map(drop).map_err(|error| {
        Failure::failed(format!("listening at 127.0.0.1:{port}"), error, "give --serve another port")
    })?;
    // With standard error gone there is nobody left to tell.
    let _ = writeln!(
        std::io::stderr(),
        "http://127.0.0.1:{port}/ has the runs of {}; interrupt to end",
        model.protocol.name()
    );
    model.checker().serve(address);
    Ok(())
}
