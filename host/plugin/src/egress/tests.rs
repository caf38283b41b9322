//! Tests of the egress rules, each allowed case beside its refused twin, and of requests to TLS
//! servers on a fake network.

mod addresses;
mod entries;
mod exchange;
mod failures;
mod fake_network;
mod urls;
