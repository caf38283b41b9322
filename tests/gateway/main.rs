//! The whole gateway over loopback.

mod limits;
mod plugins;
mod reload;
mod streaming;
mod support;
