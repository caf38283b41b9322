//! A scripted day: real kubectl, a real gateway with TLS, a real API server, a real
//! OpenID provider.

mod day;
mod records;
mod refusals;
mod revocation;
mod roles;
pub(crate) mod world;

/// First by its name, so that it runs beside everything else.
#[tokio::test]
async fn a_stream_without_a_byte_lives_ten_minutes() {
    day::idle_watch().await;
}
