//! Access to an agent's cluster with a real kubectl, a gateway with TLS, an API server and an
//! OpenID provider.

mod dialing_out;
pub(crate) mod fixture;
mod records;
mod refusals;
mod revocation;
mod roles;
mod workflow;

/// Its name sorts before others, so that it starts first and runs beside everything else.
#[tokio::test]
async fn a_stream_without_a_byte_lives_ten_minutes() {
    workflow::idle_watch().await;
}
