//! A whole gateway on loopback: what callers are told, and what backends see.

mod access;
mod attacks;
mod behaviours;
mod limits;
mod plugins;
mod reload;
mod streaming;
mod support;
