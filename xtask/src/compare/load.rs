//! Loads running servers with wrk and reports requests per second and latencies, as medians of
//! alternating rounds.
//!
//! Invariant: a proxy is measured only if its response is correct, and, where it should require a
//! session, only if it refuses a request without one.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Effort;
use super::exchange::Exchange;
use super::servers::{LOAD_CORE, START, Server, pinned};

/// Connections the load generator keeps busy.
const CONNECTIONS: usize = 32;
/// Load before the first round, so that caches and pools are warm.
const WARM_UP: Duration = Duration::from_secs(1);

/// One server to load.
#[derive(Debug)]
pub(super) struct Target {
    name: &'static str,
    address: SocketAddr,
    session: Session,
}

/// Whether a target requires a session.
#[derive(Debug)]
enum Session {
    Ignored,
    Required(String),
}

/// The measurements of a target.
#[derive(Debug)]
pub(super) struct Measured {
    /// The target.
    pub(super) name: &'static str,
    /// Responses per second.
    pub(super) requests_per_second: f64,
    /// Median latency.
    pub(super) p50: Duration,
    /// Latency of the 99th percentile.
    pub(super) p99: Duration,
}

impl Target {
    /// The backend, or a proxy that requires no session.
    pub(super) fn unauthenticated(name: &'static str, server: &Server) -> Self {
        Self {
            name,
            address: server.address,
            session: Session::Ignored,
        }
    }

    /// A proxy that refuses requests without a session.
    pub(super) fn authenticated(name: &'static str, server: &Server, token: &str) -> Self {
        Self {
            name,
            address: server.address,
            session: Session::Required(format!("argocd.token={token}")),
        }
    }

    fn url(&self, exchange: &Exchange) -> String {
        format!("http://{}{}", self.address, exchange.path)
    }

    /// Sends one request; returns status and body.
    async fn send(&self, exchange: &Exchange, client: &reqwest::Client, cookie: Option<&str>) -> Result<(u16, String)> {
        let mut request = client.get(self.url(exchange));
        for (name, value) in exchange.fields {
            request = request.header(*name, *value);
        }
        if let Some(cookie) = cookie {
            request = request.header("Cookie", cookie);
        }
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// Waits until the target answers, and checks its response; where a session is required, also
    /// that a request without one is refused.
    async fn check(&self, exchange: &Exchange, client: &reqwest::Client) -> Result<()> {
        let cookie = match &self.session {
            Session::Ignored => None,
            Session::Required(cookie) => Some(cookie.as_str()),
        };
        let started = Instant::now();
        let (status, text) = loop {
            match self.send(exchange, client, cookie).await {
                // 503: it is still starting.
                Ok(answer) if answer.0 != 503 || started.elapsed() > START => break answer,
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) if started.elapsed() > START => {
                    return Err(error).context(format!("{} does not answer", self.name));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        ensure!(
            status == 200 && text == exchange.content,
            "{} answered {status}: {text}",
            self.name
        );
        if cookie.is_some() {
            let (status, _) = self.send(exchange, client, None).await?;
            ensure!(
                (400..500).contains(&status),
                "{} answered {status} to a request without a session",
                self.name
            );
        }
        Ok(())
    }

    /// Runs one round of load.
    fn load(&self, exchange: &Exchange, duration: Duration) -> Result<Measured> {
        let mut command = pinned(LOAD_CORE, Path::new("wrk"));
        command.args(["--threads", "1", "--latency"]);
        command.arg("--connections").arg(CONNECTIONS.to_string());
        command.arg("--duration").arg(format!("{}s", duration.as_secs()));
        for (name, value) in exchange.fields {
            command.arg("--header").arg(format!("{name}: {value}"));
        }
        if let Session::Required(cookie) = &self.session {
            command.arg("--header").arg(format!("Cookie: {cookie}"));
        }
        read(self.name, command.arg(self.url(exchange)))
    }
}

/// Checks and warms up every target, then loads them in turn with one request; returns the medians
/// of the rounds.
pub(super) async fn measure(exchange: &Exchange, targets: &[Target], effort: Effort) -> Result<Vec<Measured>> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_secs(5))
        .build()?;
    for target in targets {
        target.check(exchange, &client).await?;
        target.load(exchange, WARM_UP)?;
    }
    let mut rounds: Vec<Vec<Measured>> = targets.iter().map(|_| Vec::new()).collect();
    for round in 1..=effort.rounds {
        for (target, measured) in targets.iter().zip(&mut rounds) {
            println!("round {round} of {}: {} {}", effort.rounds, target.name, exchange.path);
            measured.push(target.load(exchange, effort.load)?);
        }
    }
    targets
        .iter()
        .zip(rounds)
        .map(|(target, rounds)| combine(target.name, &rounds))
        .collect()
}

fn combine(name: &'static str, rounds: &[Measured]) -> Result<Measured> {
    let rates = rounds.iter().map(|round| round.requests_per_second);
    Ok(Measured {
        name,
        requests_per_second: median(rates, f64::total_cmp).context("no round")?,
        p50: median(rounds.iter().map(|round| round.p50), Ord::cmp).context("no round")?,
        p99: median(rounds.iter().map(|round| round.p99), Ord::cmp).context("no round")?,
    })
}

fn median<T: Copy>(values: impl Iterator<Item = T>, order: impl FnMut(&T, &T) -> std::cmp::Ordering) -> Option<T> {
    let mut sorted: Vec<T> = values.collect();
    sorted.sort_by(order);
    sorted.get(sorted.len() / 2).copied()
}

fn read(name: &'static str, wrk: &mut Command) -> Result<Measured> {
    let output = wrk.output().context("starting wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "wrk ended with {}: {text}", output.status);
    parse(name, &text)
}

/// Reads wrk's report.
///
/// # Errors
/// The report counts responses other than 2xx or 3xx, or socket errors, or lacks a value.
fn parse(name: &'static str, text: &str) -> Result<Measured> {
    if let Some(line) = text
        .lines()
        .find(|line| line.contains("Non-2xx") || line.contains("Socket errors"))
    {
        bail!("{name}: {}", line.trim());
    }
    let value = |label: &str| {
        let line = text.lines().map(str::trim).find_map(|line| line.strip_prefix(label));
        line.map(str::trim)
            .with_context(|| format!("wrk printed no `{label}`: {text}"))
    };
    Ok(Measured {
        name,
        requests_per_second: value("Requests/sec:")?.parse()?,
        p50: latency(value("50%")?)?,
        p99: latency(value("99%")?)?,
    })
}

/// Parses a latency as wrk writes it: `870.00us`, `1.03ms`, `1.20s`.
fn latency(text: &str) -> Result<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => bail!("`{text}` is not a latency of wrk, such as `1.03ms`"),
    };
    Ok(Duration::try_from_secs_f64(number.parse::<f64>()? * seconds)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Running 8s test @ http://127.0.0.1:1/\n  1 threads and 32 connections\n  \
        Latency Distribution\n     50%  870.00us\n     75%    1.03ms\n     90%    1.31ms\n     99%    1.20s \n  \
        100 requests in 8.00s, 1.00MB read\nRequests/sec:  12345.67\nTransfer/sec:      1.00MB\n";

    #[test]
    fn reads_a_report() {
        let measured = parse("nginx", REPORT).unwrap();
        assert_eq!(measured.requests_per_second, 12345.67);
        assert_eq!(measured.p50, Duration::from_micros(870));
        assert_eq!(measured.p99, Duration::from_millis(1200));
    }

    #[test]
    fn refuses_a_report_with_failures() {
        let failed = format!("{REPORT}  Non-2xx or 3xx responses: 7\n");
        assert_eq!(
            parse("nginx", &failed).unwrap_err().to_string(),
            "nginx: Non-2xx or 3xx responses: 7"
        );
        let cut = format!("{REPORT}  Socket errors: connect 0, read 1, write 0, timeout 0\n");
        assert!(parse("nginx", &cut).unwrap_err().to_string().contains("read 1"));
    }

    #[test]
    fn takes_the_middle_round() {
        assert_eq!(median([3, 1, 2].into_iter(), Ord::cmp), Some(2));
        assert_eq!(median(std::iter::empty::<u8>(), Ord::cmp), None);
    }
}
