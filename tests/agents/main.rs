//! Measures clusters behind an agent beside the same API server without one ([`beside`]), and thousands of
//! agents at one gateway ([`many`]). `cargo xtask compare` builds and starts it.
//!
//! The output has a JSON object on a line for each measurement: see [`Measured`].

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "as in tests, a failure ends the program; the output is for `cargo xtask compare`"
)]

use serde_json::json;

mod beside;
mod many;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Rounds of each way.
    rounds: usize,
    /// Requests or keystrokes in a round.
    requests: usize,
    /// Bytes of a long answer.
    bytes: usize,
    /// Watches through one agent.
    watches: usize,
    /// Agents at one gateway.
    agents: usize,
}

const FULL: Effort = Effort {
    rounds: 5,
    requests: 200,
    bytes: 100 << 20,
    watches: 2_000,
    agents: 5_000,
};

const QUICK: Effort = Effort {
    rounds: 1,
    requests: 20,
    bytes: 10 << 20,
    watches: 100,
    agents: 100,
};

/// One measurement.
struct Measured {
    name: &'static str,
    value: f64,
    /// `×` for a ratio to the way without an agent.
    unit: &'static str,
    /// The most, or with `is_least` the least, that it should be.
    goal: f64,
    is_least: bool,
}

impl Measured {
    fn at_most(name: &'static str, (value, unit): (f64, &'static str), goal: f64) -> Self {
        Self {
            name,
            value,
            unit,
            goal,
            is_least: false,
        }
    }

    fn at_least(name: &'static str, (value, unit): (f64, &'static str), goal: f64) -> Self {
        Self {
            is_least: true,
            ..Self::at_most(name, (value, unit), goal)
        }
    }

    fn print(&self) {
        let Self {
            name,
            value,
            unit,
            goal,
            is_least,
        } = self;
        println!(
            "{}",
            json!({"name": name, "value": value, "unit": unit, "goal": goal, "isLeast": is_least})
        );
    }
}

/// The value below which this part of the values are.
fn percentile(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

/// Says on standard error what is measured now.
fn say(text: &str) {
    eprintln!("  {text}");
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, addresses @ ..] = arguments.as_slice()
        && word == many::BALANCE
    {
        let addresses: Vec<_> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        return many::balance(&addresses).await;
    }
    let effort = match arguments.iter().any(|argument| argument == "--quick") {
        true => QUICK,
        false => FULL,
    };
    many::measure(effort).await;
    beside::measure(effort).await;
}
