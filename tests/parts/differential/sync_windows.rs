//! Compares whether sync windows permit a manual sync with Argo CD's own code, at random times.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_core::diagnostic::Location;
use tollgate_objects::{Application, ObjectName, SyncWindow};
use tollgate_policy::sync_windows::{Closed, SyncWindows};

use crate::differential::exception::Exception;
use crate::differential::harness::{Kind, Outcome, Verdict, run};
use crate::differential::random::Random;
use test_support::judge::Judge;

/// 2000-01-01, where the judge's clock starts.
const EARLIEST: u64 = 946_684_800;
/// 2024-01-01.
const FIRST: u64 = 1_704_067_200;

/// The sync windows of a project, an Application, and a time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Case {
    windows: Vec<Window>,
    application: String,
    destination: Destination,
    seconds: u64,
    nanoseconds: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Window {
    kind: String,
    schedule: String,
    duration: String,
    time_zone: String,
    applications: Vec<String>,
    namespaces: Vec<String>,
    clusters: Vec<String>,
    and_operator: bool,
    manual_sync: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Destination {
    name: String,
    server: String,
    namespace: String,
}

struct ManualSyncs;

impl Kind for ManualSyncs {
    type Case = Case;
    const NAME: &'static str = "sync-windows";
    const FEWEST: [u64; 3] = [1000, 1000, 50];

    fn draw(random: &mut Random) -> Case {
        let windows = (0..=random.below(3)).map(|_| window(random)).collect();
        let (name, server) = random.pick(&[("prod", ""), ("", "https://prod"), ("", "")]);
        let minute = u64::try_from(random.below(6 * 366 * 24 * 60)).unwrap();
        // Near the minutes at which windows open and close.
        let (second, nanoseconds) = match random.below(4) {
            0 => (0, 0),
            1 => (0, 1),
            2 => (59, 999_999_999),
            _ => (random.below(60), u32::try_from(random.below(1_000_000_000)).unwrap()),
        };
        Case {
            windows,
            application: random.pick(&["cart", "cart-eu", "shop"]).to_owned(),
            destination: Destination {
                name: name.to_owned(),
                server: server.to_owned(),
                namespace: random.pick(&["cart", "shop", ""]).to_owned(),
            },
            seconds: FIRST + minute * 60 + u64::try_from(second).unwrap(),
            nanoseconds,
        }
    }

    fn compare(case: &Case, theirs: Result<&Value, &str>, _: &Judge) -> Vec<Outcome> {
        if case.seconds < EARLIEST {
            return Vec::new();
        }
        let theirs = theirs.map(|verdict| verdict["canSync"].as_bool().unwrap());
        let ours = check(case, &case.windows);
        vec![match (&ours, theirs) {
            (Ok(()), Ok(true)) => Outcome::Same(Verdict::Allow),
            (Err(Closed::Denied { .. } | Closed::NotOpen { .. }), Ok(false)) => Outcome::Same(Verdict::Deny),
            (Err(Closed::Mistake { .. }), Err(_)) => Outcome::Same(Verdict::Refused),
            (Err(Closed::Mistake { .. }), Ok(theirs)) if as_argo_cd_reads(case) == Some(theirs) => {
                Outcome::Exception(Exception::SyncWindowsMistake)
            }
            (ours, theirs) => Outcome::Unexplained(format!("ours {ours:?}, theirs {theirs:?}")),
        }]
    }
}

fn check(case: &Case, windows: &[Window]) -> Result<(), Closed> {
    let written: Vec<SyncWindow> = windows.iter().map(Window::written).collect();
    let application = Application {
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: case.application.clone(),
        },
        project: "shop".to_owned(),
        destination: tollgate_objects::Destination {
            name: case.destination.name.clone(),
            server: case.destination.server.clone(),
            namespace: case.destination.namespace.clone(),
        },
        repositories: Vec::new(),
        application_set: None,
        labels: BTreeMap::new(),
        location: Location::default(),
    };
    let now = SystemTime::UNIX_EPOCH + Duration::new(case.seconds, case.nanoseconds);
    SyncWindows::compile(&written)
        .applicable_to(&application)
        .check_manual_sync(now)
}

/// Whether Argo CD permits a sync where a window has a mistake: our answer after each mistake is
/// replaced by what Argo CD makes of it. `None` if another mistake is left.
fn as_argo_cd_reads(case: &Case) -> Option<bool> {
    let corrected: Vec<Window> = case.windows.iter().map(corrected).collect();
    let applies = |window: &&Window| {
        let always = Window {
            kind: "deny".to_owned(),
            schedule: "* * * * *".to_owned(),
            duration: "24h".to_owned(),
            manual_sync: false,
            ..(*window).clone()
        };
        check(case, &[always]).is_err()
    };
    let known = |window: &&Window| matches!(window.kind.as_str(), "allow" | "deny");
    let windows: Vec<Window> = corrected.iter().filter(applies).filter(known).cloned().collect();
    match check(case, &windows) {
        Ok(()) => Some(true),
        Err(Closed::Denied { .. } | Closed::NotOpen { .. }) => Some(false),
        Err(Closed::Mistake { .. }) => None,
    }
}

fn corrected(window: &Window) -> Window {
    let mut window = window.clone();
    for list in [&mut window.applications, &mut window.namespaces, &mut window.clusters] {
        for pattern in list.iter_mut().filter(|pattern| *pattern == "[") {
            "nothing has this name".clone_into(pattern);
        }
    }
    // An unknown zone is UTC.
    if !ZONES.contains(&window.time_zone.as_str()) {
        window.time_zone = String::new();
    }
    if let Some(rest) = window.schedule.strip_prefix("CRON_TZ=UTC ") {
        window.schedule = rest.to_owned();
    }
    // Without a duration, a window is never open.
    if window.duration.starts_with('-') || window.duration == "0" || window.duration == "0s" {
        "1ns".clone_into(&mut window.duration);
    }
    // If no time matches its schedule, a window is always open.
    let alone = Window {
        kind: "deny".to_owned(),
        applications: vec!["*".to_owned()],
        and_operator: false,
        ..window.clone()
    };
    let now = Case {
        seconds: FIRST,
        ..Case::default()
    };
    let mistake = check(&now, &[alone]).err().map(|closed| closed.to_string());
    if mistake.is_some_and(|mistake| mistake.ends_with("no time matches it")) {
        "* * * * *".clone_into(&mut window.schedule);
        "24h".clone_into(&mut window.duration);
    }
    window
}

impl Window {
    fn written(&self) -> SyncWindow {
        SyncWindow {
            kind: self.kind.clone(),
            schedule: self.schedule.clone(),
            duration: self.duration.clone(),
            time_zone: self.time_zone.clone(),
            applications: self.applications.clone(),
            namespaces: self.namespaces.clone(),
            clusters: self.clusters.clone(),
            use_and_operator: self.and_operator,
            manual_sync: self.manual_sync,
            location: Location::default(),
        }
    }
}

/// Zones whose rules have not changed for long, with and without summer time.
const ZONES: [&str; 9] = [
    "",
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Etc/GMT+12",
];
const PATTERNS: &[&str] = &[
    "*",
    "cart",
    "c*",
    "*-eu",
    "?art",
    "[a-c]art",
    "prod",
    "https://*",
    "shop",
    "!cart",
    "",
];

fn window(random: &mut Random) -> Window {
    let mut list = |percent: usize| {
        let count = if random.chance(percent) { random.below(2) + 1 } else { 0 };
        let pattern = |random: &mut Random| match random.chance(1) {
            true => "[".to_owned(),
            false => random.pick(PATTERNS).to_owned(),
        };
        (0..count).map(|_| pattern(random)).collect()
    };
    let (applications, namespaces, clusters) = (list(60), list(25), list(25));
    Window {
        applications,
        namespaces,
        clusters,
        kind: match random.chance(1) {
            true => random.pick(&["Deny", "", "allow "]),
            false => random.pick(&["allow", "deny"]),
        }
        .to_owned(),
        schedule: schedule(random),
        duration: duration(random),
        time_zone: match random.chance(1) {
            true => random.pick(&["Mars/Olympus", "europe/berlin", "../UTC"]).to_owned(),
            false => random.pick(&ZONES).to_owned(),
        },
        and_operator: random.chance(30),
        manual_sync: random.chance(30),
    }
}

fn duration(random: &mut Random) -> String {
    if random.chance(2) {
        return random.pick(&["0", "0s", "-1h", "1d", "", "1", "h"]).to_owned();
    }
    random
        .pick(&[
            "1ns", "59s", "1m", "30m", "1h", "1h30m", "1.5h", "8h", "12h", "23h59m", "24h", "72h", "168h", "+2h",
            "2540400h",
        ])
        .to_owned()
}

fn schedule(random: &mut Random) -> String {
    let words = [
        &[][..],
        &[],
        &[],
        &["jan", "Feb", "MAR", "jun", "dec"],
        &["sun", "Mon", "TUE", "sat"],
    ];
    let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    let fields = bounds
        .iter()
        .zip(words)
        .map(|(&(low, high), words)| field(random, (low, high), words));
    let mut text = fields.collect::<Vec<_>>().join(" ");
    if random.chance(1) {
        text = random
            .pick(&[
                "0 0 30 2 *",
                "0 0 31 4,6 *",
                "@daily",
                "@every 1h",
                "0 0 29 2 *",
                ", * * * *",
                "TZ=UTC",
            ])
            .to_owned();
    }
    if random.chance(1) {
        text.insert_str(0, "CRON_TZ=UTC ");
    }
    match random.chance(4) {
        true => random.mutate(
            &text,
            &[
                "*", "/", "-", ",", "?", "0", "1", "7", "60", " ", "+", "L", "#", "mon", "\t",
            ],
        ),
        false => text,
    }
}

fn field(random: &mut Random, (low, high): (usize, usize), words: &[&str]) -> String {
    let number = |random: &mut Random| match words {
        [_, ..] if random.chance(40) => random.pick(words).to_owned(),
        _ => (low + random.below(high - low + 1)).to_string(),
    };
    let part = |random: &mut Random| match random.below(8) {
        0..=2 => "*".to_owned(),
        3 => number(random),
        4 => {
            let from = low + random.below(high - low + 1);
            format!("{from}-{}", from + random.below(high - from + 1))
        }
        5 => format!("*/{}", random.below(12)),
        6 => format!("{}/{}", number(random), random.below(7) + 1),
        _ => format!("{}-{high}/{}", number(random), random.below(5) + 1),
    };
    match random.chance(20) {
        true => format!("{},{}", part(random), part(random)),
        false => part(random),
    }
}

#[test]
fn manual_syncs_pass_where_argo_cd_lets_them_pass() {
    run::<ManualSyncs>();
}
