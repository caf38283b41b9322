//! Signals by which the system asks a process to stop.

/// Waits for SIGINT or SIGTERM. Cancel safe.
pub async fn shutdown_signal() {
    let interrupted = tokio::signal::ctrl_c();
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut terminated) => {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
            }
        }
        Err(error) => {
            tracing::warn!(%error, "SIGTERM cannot be awaited; only ctrl-c stops this process");
            let _ = interrupted.await;
        }
    }
}
