//! Writes the measurements of one run as Markdown tables, and replaces the marked blocks of
//! docs/performance.md and benches/medians.md with them.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Findings;
use super::controllers;
use super::criterion::Bench;
use super::load::Measured;
use super::machine::Machine;
use super::micro::{Answer, Peer};
use super::streams::{self, StreamKind};

/// Name of Tollgate's row.
pub(super) const TOLLGATE: &str = "Tollgate";
/// Name of the rows of the gateway of another checkout.
pub(super) const OTHER: &str = "the other Tollgate";
/// Name of the row of Argo CD's extension proxy.
pub(super) const ARGOCD: &str = "Argo CD's extension proxy";
/// Name of nginx's row.
pub(super) const NGINX: &str = "nginx `proxy_pass`";
/// Name of the row without any proxy.
pub(super) const DIRECT: &str = "direct to the backend";

/// Benches without which the report is not written.
const NEEDED: [&str; 4] = ["rbac/hit/10000", "rbac/miss/10000", "rego/extensions", "list/10000"];

/// Upper bounds of benches: name, bound in nanoseconds, description.
const BOUNDS: [(&str, f64, &str); 10] = [
    ("credential/cached", 200.0, "cached credential of a cluster"),
    ("rbac/hit/10000", 300.0, "RBAC decision at 10,000 rows, allowed"),
    ("rbac/miss/10000", 300.0, "RBAC decision at 10,000 rows, denied"),
    ("rbac/hit/100000", 500.0, "RBAC decision at 100,000 rows, allowed"),
    ("rbac/miss/100000", 500.0, "RBAC decision at 100,000 rows, denied"),
    ("rego/extensions", 3_000.0, "decision through the shipped Rego bundle"),
    ("list/10000", 10_000_000.0, "list of 10,000 applications"),
    (
        "plan/request, 12 fields",
        500.0,
        "static header plan, request of 12 fields",
    ),
    (
        "plan/response, 12 fields",
        500.0,
        "static header plan, response of 12 fields",
    ),
    (ONE_THREAD, 12_000.0, "per-request plugin"),
];

/// Benches of plugin calls on one thread and on two.
const ONE_THREAD: &str = "call/fresh instance, 1 threads";
const TWO_THREADS: &str = "call/fresh instance, 2 threads";
/// Benches of arithmetic without shared data on one thread and on two: how far the machine itself
/// scales.
const CONTROL: [&str; 2] = ["call/control, 1 threads", "call/control, 2 threads"];
/// Least ratio of the throughput of two threads to that of one.
const THREADS: f64 = 1.6;

/// Least ratios of Tollgate's throughput with calls of an extension to that of another row.
const RATIOS: [(&str, f64); 2] = [(NGINX, 0.7), (ARGOCD, 3.0)];
/// Least ratio of its throughput with lists of applications to that of nginx.
const APPLICATIONS: f64 = 0.6;

/// The finished tables.
#[derive(Debug)]
pub(super) struct Report<'a> {
    findings: &'a Findings,
    machine: &'a Machine,
    command: &'static str,
}

impl<'a> Report<'a> {
    pub(super) fn new(findings: &'a Findings, machine: &'a Machine, command: &'static str) -> Self {
        Self {
            findings,
            machine,
            command,
        }
    }

    /// Everything, as Markdown.
    pub(super) fn text(&self) -> String {
        format!("{}\n{}", self.compared(), self.benches())
    }

    /// Those of [`NEEDED`] that have no result.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        NEEDED.into_iter().filter(|name| self.own(name).is_none()).collect()
    }

    /// Puts each block into its file below `root`, between its markers.
    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let blocks = [
            ("docs/performance.md", "compare", self.compared()),
            ("benches/medians.md", "benches", self.benches()),
        ];
        for (file, name, block) in blocks {
            let file = root.join(file);
            let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            let text = replace(&text, name, &block)?;
            std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        }
        Ok(())
    }

    fn own(&self, name: &str) -> Option<f64> {
        self.findings
            .benches
            .iter()
            .find(|bench| bench.name == name)
            .map(|bench| bench.nanoseconds)
    }

    fn heading(&self) -> String {
        format!(
            "Made by `{}` at commit {} on {}.\n",
            self.command, self.machine.commit, self.machine.hardware
        )
    }

    fn compared(&self) -> String {
        let parts = [
            self.heading(),
            self.extensions(),
            self.applications(),
            self.streams(),
            self.controllers(),
            self.decisions(),
            self.goals(),
        ];
        parts.join("\n")
    }

    fn extensions(&self) -> String {
        let mut table = "| under load | requests/s | of direct | of nginx | of Argo CD's | p50 | p99 |\n\
            |---|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
        for proxy in &self.findings.servers.extensions {
            let of = [DIRECT, NGINX, ARGOCD];
            row(&mut table, &load_cells(proxy, &self.findings.servers.extensions, &of));
        }
        table
    }

    fn applications(&self) -> String {
        let mut table = "| list of applications, 50 KiB | requests/s | of direct | of nginx | p50 | p99 |\n\
            |---|---:|---:|---:|---:|---:|\n"
            .to_owned();
        for proxy in &self.findings.servers.applications {
            let of = [DIRECT, NGINX];
            row(&mut table, &load_cells(proxy, &self.findings.servers.applications, &of));
        }
        table
    }

    fn streams(&self) -> String {
        let mut table =
            "| open streams of the front `argocd` | streams | memory for each |\n|---|---:|---:|\n".to_owned();
        for streams::Measured {
            name,
            kind,
            count,
            bytes_each,
        } in &self.findings.servers.streams
        {
            let count = thousands(*count as f64);
            let kind = of_build(stream_name(*kind), name);
            row(&mut table, &[kind, count, kibibytes(*bytes_each)]);
        }
        table
    }

    fn controllers(&self) -> String {
        let mut table =
            "| Argo CD's controllers, best round | without | with the gateway | ratio |\n|---|---:|---:|---:|\n"
                .to_owned();
        for measured in &self.findings.controllers {
            let [without, with] = measured.best();
            let cells = [
                of_build(controller_name(measured), measured.build),
                format!("{without:.1} s"),
                format!("{with:.1} s"),
                format!("{:.2}", with / without),
            ];
            row(&mut table, &cells);
        }
        table
    }

    fn decisions(&self) -> String {
        let mut table = "| one answer | Tollgate | Tollgate, from claims | Argo CD, new question | Argo CD, asked before | casbin-rs | OPA |\n\
            |---|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
        let mut names: Vec<&str> = Vec::new();
        for answer in &self.findings.peers {
            let asked = answer.name.trim_end_matches("/decoded-json");
            if !names.contains(&asked) && !asked.contains("-repeated") {
                names.push(asked);
            }
        }
        for name in names {
            let own = self.own(name);
            let cell = |peer, name: &str| self.cell(own, peer, name);
            let cells = [
                format!("`{name}`"),
                self.own_cell(name),
                self.own_cell(&variant(name, "from-claims")),
                cell(Peer::Argocd, name),
                cell(Peer::Argocd, &variant(name, "repeated")),
                cell(Peer::Casbin, name),
                cell(Peer::Opa, name),
            ];
            row(&mut table, &cells);
        }
        table
    }

    fn own_cell(&self, name: &str) -> String {
        self.own(name).map_or("–".to_owned(), |own| time(nanoseconds(own)))
    }

    fn cell(&self, own: Option<f64>, peer: Peer, name: &str) -> String {
        let Some(answer) = self
            .findings
            .peers
            .iter()
            .find(|answer| answer.peer == peer && answer.name == name)
        else {
            return "–".to_owned();
        };
        let Answer {
            nanoseconds: theirs,
            scaled_from,
            ..
        } = answer;
        let about = if scaled_from.is_some() { "about " } else { "" };
        let ratio = own.map_or(String::new(), |own| format!(" ({} ×)", ratio(theirs / own)));
        format!("{about}{}{ratio}", time(nanoseconds(*theirs)))
    }

    fn goals(&self) -> String {
        let mut table = "| goal | bound | reached | met |\n|---|---:|---:|---|\n".to_owned();
        for (name, bound, words) in BOUNDS {
            if let Some(own) = self.own(name) {
                let met = yes(own < bound);
                row(
                    &mut table,
                    &[words.to_owned(), time(nanoseconds(bound)), time(nanoseconds(own)), met],
                );
            }
        }
        let ratio = |one: &str, two: &str| Some(self.own(one)? / self.own(two)?);
        if let (Some(reached), Some(control)) = (ratio(ONE_THREAD, TWO_THREADS), ratio(CONTROL[0], CONTROL[1])) {
            row(
                &mut table,
                &[
                    format!("plugin calls of two threads beside one; plain arithmetic reached {control:.2} ×"),
                    format!("{THREADS:.1} ×"),
                    format!("{reached:.2} ×"),
                    yes(reached >= THREADS),
                ],
            );
        }
        let servers = &self.findings.servers;
        let throughput = |(other, least): &(&'static str, f64)| {
            let words = format!("throughput beside {other}");
            (words, &servers.extensions, *other, *least)
        };
        let mut throughputs: Vec<_> = RATIOS.iter().map(throughput).collect();
        let words = format!("lists of applications, throughput beside {NGINX}");
        throughputs.push((words, &servers.applications, NGINX, APPLICATIONS));
        for (words, proxies, other, least) in throughputs {
            if let Some((own, other)) = rate(proxies, TOLLGATE).zip(rate(proxies, other)) {
                let reached = own / other;
                let met = yes(reached >= least);
                row(
                    &mut table,
                    &[words, format!("{least:.1} ×"), format!("{reached:.2} ×"), met],
                );
            }
        }
        for measured in &self.findings.controllers {
            let ([without, with], bound) = (measured.best(), controller_bound(measured));
            let reached = with / without;
            let words = of_build(&format!("time: {}", controller_name(measured)), measured.build);
            let met = yes(reached <= bound);
            row(
                &mut table,
                &[words, format!("{bound:.2} ×"), format!("{reached:.2} ×"), met],
            );
        }
        for measured in &self.findings.agents {
            let with_unit = |value: f64| format!("{value:.2} {}", measured.unit);
            let goal = with_unit(measured.goal);
            let words = of_build(&format!("agents: {}", measured.name), measured.build);
            row(
                &mut table,
                &[words, goal, with_unit(measured.value), yes(measured.is_met())],
            );
        }
        for streams::Measured {
            name, kind, bytes_each, ..
        } in &servers.streams
        {
            let words = of_build(&format!("memory: {}", stream_name(*kind)), name);
            let bound = memory_bound(*kind);
            let met = yes(*bytes_each <= bound);
            row(&mut table, &[words, kibibytes(bound), kibibytes(*bytes_each), met]);
        }
        table
    }

    fn benches(&self) -> String {
        let mut table = format!("{}\n| bench | median |\n|---|---:|\n", self.heading());
        for Bench {
            name,
            nanoseconds: median,
        } in &self.findings.benches
        {
            row(&mut table, &[format!("`{name}`"), time(nanoseconds(*median))]);
        }
        table
    }
}

fn rate(proxies: &[Measured], name: &str) -> Option<f64> {
    let proxy = proxies.iter().find(|proxy| proxy.name == name)?;
    Some(proxy.requests_per_second)
}

/// Cells of a proxy under load, with its ratios to some of `proxies`.
fn load_cells(proxy: &Measured, proxies: &[Measured], of: &[&str]) -> Vec<String> {
    let Measured {
        name,
        requests_per_second,
        p50,
        p99,
    } = proxy;
    let ratio =
        |other: &&str| rate(proxies, other).map_or(String::new(), |rate| format!("{:.2}", requests_per_second / rate));
    let mut cells = vec![(*name).to_owned(), thousands(*requests_per_second)];
    cells.extend(of.iter().map(ratio));
    cells.extend([time(*p50), time(*p99)]);
    cells
}

/// The words of a row, which say it if another build than this checkout's was measured.
fn of_build(words: &str, build: &str) -> String {
    match build {
        OTHER => format!("{words} ({OTHER})"),
        _ => words.to_owned(),
    }
}

fn stream_name(kind: StreamKind) -> &'static str {
    match kind {
        StreamKind::GrpcWatch => "gRPC watches, 100 to a connection",
        StreamKind::ServerSentEvents => "server-sent events, TLS both ways, a connection each",
    }
}

fn controller_name(measured: &controllers::Measured) -> &str {
    match measured.name.as_str() {
        "generation" => "1,000 generated Applications exist, without and with the admission webhook",
        "generation and comparison" => "they are compared with their cluster",
        "refresh" => "refresh of 1,000 Applications in 20 clusters",
        "refresh with new caches" => "the same, with the caches of all clusters filled again",
        other => other,
    }
}

/// Most time with the gateway, beside the time without it.
fn controller_bound(measured: &controllers::Measured) -> f64 {
    if measured.name.starts_with("generation") {
        1.1
    } else {
        1.15
    }
}

/// Most bytes of memory for a stream.
fn memory_bound(kind: StreamKind) -> f64 {
    match kind {
        StreamKind::GrpcWatch => 8.0 * 1024.0,
        StreamKind::ServerSentEvents => 56.0 * 1024.0,
    }
}

/// Name of a variant of a question: `rbac/hit/10` and `repeated` give `rbac/hit-repeated/10`.
fn variant(name: &str, word: &str) -> String {
    match name.rsplit_once('/') {
        Some((question, size)) => format!("{question}-{word}/{size}"),
        None => format!("{name}-{word}"),
    }
}

fn row(table: &mut String, cells: &[String]) {
    // INVARIANT: writing to a `String` cannot fail.
    let _ = writeln!(table, "| {} |", cells.join(" | "));
}

fn yes(met: bool) -> String {
    if met { "yes" } else { "no" }.to_owned()
}

fn nanoseconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value * 1e-9).unwrap_or(Duration::MAX)
}

/// Formats a time with up to three significant digits, in a suitable unit.
fn time(value: Duration) -> String {
    let seconds = value.as_secs_f64();
    let (number, unit) = match seconds {
        _ if seconds < 1e-6 => return format!("{:.0} ns", seconds * 1e9),
        _ if seconds < 1e-3 => (seconds * 1e6, "µs"),
        _ if seconds < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    format!("{} {unit}", significant(number))
}

fn ratio(value: f64) -> String {
    if value >= 1_000.0 {
        thousands(value)
    } else {
        significant(value)
    }
}

fn significant(number: f64) -> String {
    let digits = match number {
        _ if number < 10.0 => 2,
        _ if number < 100.0 => 1,
        _ => 0,
    };
    format!("{number:.digits$}")
}

fn kibibytes(bytes: f64) -> String {
    format!("{} KiB", significant(bytes / 1024.0))
}

/// Formats a number with thousands separators: `12,345`.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Puts `block` between the markers `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
fn replace(text: &str, name: &str, block: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let (before, rest) = text
        .split_once(&begin)
        .with_context(|| format!("no marker `{begin}`"))?;
    let (_, after) = rest
        .split_once(&end)
        .with_context(|| format!("no marker `{end}` after `{begin}`"))?;
    Ok(format!("{before}{begin}\n{block}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Servers, agents};
    use super::*;

    #[test]
    fn writes_three_digits() {
        let shown = |value| time(nanoseconds(value));
        assert_eq!(shown(183.4), "183 ns");
        assert_eq!(shown(2_070.0), "2.07 µs");
        assert_eq!(shown(9_400_000.0), "9.40 ms");
        assert_eq!(shown(12_345_000_000.0), "12.3 s");
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(ratio(52.04), "52.0");
    }

    #[test]
    fn replaces_only_its_block() {
        let text = "a\n<!-- compare:begin -->\nold\n<!-- compare:end -->\nb\n";
        assert_eq!(
            replace(text, "compare", "new\n").unwrap(),
            "a\n<!-- compare:begin -->\nnew\n<!-- compare:end -->\nb\n"
        );
        assert!(replace(text, "benches", "new\n").is_err());
    }

    #[test]
    fn lists_missing_benches_and_unmet_goals() {
        let findings = Findings {
            servers: Servers {
                extensions: vec![proxy(NGINX, 20_000.0), proxy(TOLLGATE, 13_000.0)],
                applications: vec![proxy(NGINX, 10_000.0), proxy(TOLLGATE, 6_100.0)],
                streams: vec![
                    stream(StreamKind::GrpcWatch, 6_144.0),
                    stream(StreamKind::ServerSentEvents, 61_440.0),
                ],
            },
            controllers: vec![controllers::Measured {
                build: TOLLGATE,
                name: "generation".into(),
                without: vec![21.0, 20.0],
                with: vec![23.0, 24.0],
            }],
            agents: vec![agents::Measured {
                build: TOLLGATE,
                name: "memory of an idle agent".into(),
                value: 40.0,
                unit: "KiB".into(),
                goal: 64.0,
                is_least: false,
            }],
            peers: vec![Answer {
                peer: Peer::Casbin,
                name: "rbac/hit/10000".into(),
                nanoseconds: 9.4e6,
                scaled_from: None,
            }],
            benches: vec![
                bench("rbac/hit/10000", 188.0),
                bench(ONE_THREAD, 8_000.0),
                bench(TWO_THREADS, 4_000.0),
                bench(CONTROL[0], 1_000.0),
                bench(CONTROL[1], 520.0),
            ],
        };
        let machine = Machine {
            hardware: "a machine".into(),
            commit: "abc".into(),
        };
        let report = Report::new(&findings, &machine, "cargo xtask compare");
        assert_eq!(report.missing(), ["rbac/miss/10000", "rego/extensions", "list/10000"]);
        let text = report.text();
        assert!(
            text.contains("| `rbac/hit/10000` | 188 ns | – | – | – | 9.40 ms (50,000 ×) | – |"),
            "{text}"
        );
        assert!(
            text.contains("| throughput beside nginx `proxy_pass` | 0.7 × | 0.65 × | no |"),
            "{text}"
        );
        assert!(
            text.contains("| lists of applications, throughput beside nginx `proxy_pass` | 0.6 × | 0.61 × | yes |"),
            "{text}"
        );
        assert!(
            text.contains("| memory: gRPC watches, 100 to a connection | 8.00 KiB | 6.00 KiB | yes |"),
            "{text}"
        );
        assert!(
            text.contains("a connection each | 56.0 KiB | 60.0 KiB | no |"),
            "{text}"
        );
        assert!(
            text.contains("| RBAC decision at 10,000 rows, allowed | 300 ns | 188 ns | yes |"),
            "{text}"
        );
        assert!(
            text.contains("the admission webhook | 20.0 s | 23.0 s | 1.15 |"),
            "{text}"
        );
        assert!(
            text.contains("the admission webhook | 1.10 × | 1.15 × | no |"),
            "{text}"
        );
        assert!(
            text.contains("arithmetic reached 1.92 × | 1.6 × | 2.00 × | yes |"),
            "{text}"
        );
    }

    fn bench(name: &str, nanoseconds: f64) -> Bench {
        Bench {
            name: name.into(),
            nanoseconds,
        }
    }

    fn stream(kind: StreamKind, bytes_each: f64) -> streams::Measured {
        streams::Measured {
            name: TOLLGATE,
            kind,
            count: 5_000,
            bytes_each,
        }
    }

    fn proxy(name: &'static str, requests_per_second: f64) -> Measured {
        Measured {
            name,
            requests_per_second,
            p50: Duration::from_millis(1),
            p99: Duration::from_millis(2),
        }
    }
}
