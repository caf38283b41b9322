use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};

use super::SyncWindows;
use tollgate_core::diagnostic::Location;
use tollgate_objects::{Application, Destination, ObjectName, SyncWindow};

fn window(kind: &str, schedule: &str, duration: &str) -> SyncWindow {
    SyncWindow {
        kind: kind.to_owned(),
        schedule: schedule.to_owned(),
        duration: duration.to_owned(),
        applications: vec!["*".to_owned()],
        location: Location::new("project.yaml", 9),
        ..SyncWindow::default()
    }
}

fn manual(window: SyncWindow) -> SyncWindow {
    SyncWindow {
        manual_sync: true,
        ..window
    }
}

fn application() -> Application {
    Application {
        name: ObjectName {
            namespace: "argocd".to_owned(),
            name: "cart".to_owned(),
        },
        project: "shop".to_owned(),
        destination: Destination {
            name: "prod".to_owned(),
            server: String::new(),
            namespace: "cart-eu".to_owned(),
        },
        repositories: Vec::new(),
        application_set: None,
        labels: BTreeMap::new(),
        location: Location::default(),
    }
}

fn time(text: &str) -> SystemTime {
    text.parse::<DateTime<Utc>>().unwrap().into()
}

/// Why the windows refuse a manual sync of [`application`] at a time; empty if they permit it.
fn refusal(windows: &[SyncWindow], at: &str) -> String {
    let windows = SyncWindows::compile(windows).applicable_to(&application());
    let checked = windows.check_manual_sync(time(at));
    checked.err().map(|closed| closed.to_string()).unwrap_or_default()
}

const NIGHT: &str = "0 22 * * *";

#[test]
fn no_window_restricts_nothing() {
    assert_eq!(refusal(&[], "2026-11-27T12:00:00Z"), "");
}

#[test]
fn a_deny_window_refuses_while_it_is_open() {
    let windows = [window("deny", NIGHT, "8h")];
    let refused = "sync window `deny 0 22 * * *` for `8h` in `UTC` denies changes until 2026-11-28 06:00:00 UTC";
    for (at, expected) in [
        ("2026-11-27T21:59:59Z", ""),
        ("2026-11-27T22:00:00Z", ""),
        ("2026-11-27T22:00:00.000000001Z", refused),
        ("2026-11-28T05:59:59.999Z", refused),
        ("2026-11-28T06:00:00Z", ""),
    ] {
        assert_eq!(refusal(&windows, at), expected, "{at}");
    }
    assert_eq!(
        refusal(&[manual(window("deny", NIGHT, "8h"))], "2026-11-27T23:00:00Z"),
        ""
    );
}

#[test]
fn an_allow_window_refuses_while_it_is_closed() {
    let windows = [window("allow", NIGHT, "8h")];
    let refused = "changes are only permitted in sync windows; the next one is `allow 0 22 * * *` for `8h` in `UTC`, \
                   from 2026-11-27 22:00:00 UTC";
    assert_eq!(refusal(&windows, "2026-11-27T12:00:00Z"), refused);
    assert_eq!(refusal(&windows, "2026-11-27T22:00:01Z"), "");
    assert_eq!(
        refusal(&[manual(window("allow", NIGHT, "8h"))], "2026-11-27T12:00:00Z"),
        ""
    );
}

#[test]
fn an_open_deny_window_takes_precedence() {
    let both = |deny: SyncWindow, allow: SyncWindow| refusal(&[deny, allow], "2026-11-27T23:00:00Z");
    let (deny, allow) = (window("deny", NIGHT, "8h"), window("allow", NIGHT, "8h"));
    assert!(both(deny.clone(), allow.clone()).contains("denies changes"));
    assert_eq!(both(manual(deny.clone()), allow), "");
    // A closed window of kind `allow` does not matter then.
    let closed = window("allow", "0 3 * * *", "1h");
    assert_eq!(both(manual(deny.clone()), closed.clone()), "");
    assert!(both(window("deny", "0 3 * * *", "1h"), closed).contains("only permitted"));
    // Every open window of kind `deny` has to let a manual sync pass.
    assert!(both(manual(deny.clone()), deny).contains("denies changes"));
    // Every closed window of kind `allow` too.
    let closed = [
        manual(window("allow", "0 3 * * *", "1h")),
        window("allow", "0 4 * * *", "1h"),
    ];
    assert!(refusal(&closed, "2026-11-27T23:00:00Z").ends_with("from 2026-11-28 03:00:00 UTC"));
}

#[test]
fn a_schedule_is_in_the_zone_of_its_window() {
    let berlin = |kind: &str| SyncWindow {
        time_zone: "Europe/Berlin".to_owned(),
        ..window(kind, NIGHT, "1h")
    };
    let text = refusal(&[berlin("allow")], "2026-11-27T20:00:00Z");
    assert!(
        text.ends_with("in `Europe/Berlin`, from 2026-11-27 22:00:00 Europe/Berlin"),
        "{text}"
    );
    assert_eq!(refusal(&[berlin("allow")], "2026-11-27T21:30:00Z"), "");
    assert_eq!(refusal(&[berlin("allow")], "2026-07-27T20:30:00Z"), "");
    assert!(refusal(&[berlin("allow")], "2026-07-27T21:30:00Z").contains("only permitted"));
    // The window that opens first comes first, regardless of the local times.
    let windows = [window("allow", "30 21 * * *", "1h"), berlin("allow")];
    let text = refusal(&windows, "2026-11-27T20:00:00Z");
    assert!(text.ends_with("from 2026-11-27 22:00:00 Europe/Berlin"), "{text}");
}

#[test]
fn openings_that_overlap_are_followed() {
    let text = refusal(&[window("deny", "*/30 8-17 * * *", "30m")], "2026-11-27T09:10:00Z");
    assert!(text.ends_with("until 2026-11-27 18:00:00 UTC"), "{text}");
    let text = refusal(&[window("deny", "* * * * *", "24h")], "2026-11-27T09:10:00Z");
    assert!(text.ends_with("denies changes"), "{text}");
}

#[test]
fn a_window_applies_to_what_its_lists_match() {
    let lists = |applications: &[&str], clusters: &[&str], namespaces: &[&str], use_and_operator| {
        let own = |list: &[&str]| list.iter().map(|&pattern| pattern.to_owned()).collect();
        let window = SyncWindow {
            applications: own(applications),
            clusters: own(clusters),
            namespaces: own(namespaces),
            use_and_operator,
            ..window("deny", "* * * * *", "24h")
        };
        !refusal(&[window], "2026-11-27T12:00:00Z").is_empty()
    };
    for (applications, clusters, namespaces, any, all) in [
        (&[][..], &[][..], &[][..], false, false),
        (&["cart"], &[], &[], true, true),
        (&["shop", "c*"], &[], &[], true, true),
        (&["shop"], &[], &[], false, false),
        (&[], &["prod"], &[], true, true),
        (&[], &["https://*"], &[], false, false),
        (&[], &[], &["*-eu"], true, true),
        (&["cart"], &["test"], &[], true, false),
        (&["shop"], &["prod"], &["cart-us"], true, false),
        (&["cart"], &["prod"], &["cart-us"], true, false),
        (&["shop"], &["test"], &["cart-eu"], true, false),
        (&["cart"], &["p*"], &["cart-?u"], true, true),
        (&["argocd/cart"], &[], &[], false, false),
        (&["!shop"], &[], &[], false, false),
    ] {
        let observed = [false, true].map(|and| lists(applications, clusters, namespaces, and));
        assert_eq!(observed, [any, all], "{applications:?} {clusters:?} {namespaces:?}");
    }
}

#[test]
fn a_window_with_a_mistake_closes_every_application() {
    let good = window("allow", "* * * * *", "24h");
    let at = "2026-11-27T12:00:00Z";
    assert_eq!(refusal(std::slice::from_ref(&good), at), "");
    let with = |change: fn(&mut SyncWindow)| {
        let mut window = manual(good.clone());
        window.applications = vec!["other".to_owned()];
        change(&mut window);
        window
    };
    for (window, expected) in [
        (
            with(|window| window.kind = "Deny".to_owned()),
            "`kind` is neither `allow` nor `deny`",
        ),
        (
            with(|window| window.kind = String::new()),
            "`kind` is neither `allow` nor `deny`",
        ),
        (
            with(|window| window.schedule = "@daily".to_owned()),
            "`schedule`: it has 1 fields",
        ),
        (
            with(|window| window.duration = "1d".to_owned()),
            "`duration`: not a duration",
        ),
        (
            with(|window| window.duration = "-1h".to_owned()),
            "`duration`: a duration must not be negative",
        ),
        (with(|window| window.duration = "0".to_owned()), "`duration` is zero"),
        (
            with(|window| window.time_zone = "Europe/berlin".to_owned()),
            "`timeZone` is no time zone",
        ),
        (
            with(|window| window.time_zone = "Local".to_owned()),
            "`timeZone` is no time zone",
        ),
        (
            with(|window| window.clusters = vec!["[".to_owned()]),
            "`clusters`: an entry is not a pattern",
        ),
    ] {
        let text = refusal(&[good.clone(), window.clone()], at);
        assert!(text.contains(expected) && text.contains("cannot be used"), "{text}");
        let compiled = SyncWindows::compile(&[good.clone(), window]);
        let findings: Vec<String> = compiled.findings(2).iter().map(ToString::to_string).collect();
        let [finding] = findings.as_slice() else {
            panic!("{findings:?}")
        };
        let start = "project.yaml:9: warning: `syncWindows[1]` cannot be used: ";
        assert!(finding.starts_with(start) && finding.contains(expected), "{finding}");
        assert!(compiled.findings(1).is_empty(), "a global project has its own findings");
    }
}

#[test]
fn long_and_hostile_texts_are_shown_short() {
    let schedule = format!("{}\n\u{1b}[31m", "9".repeat(10_000));
    let text = refusal(&[window("deny", &schedule, "1h")], "2026-11-27T12:00:00Z");
    assert!(text.len() < 512 && !text.contains(char::is_control), "{text:?}");
}

#[test]
fn any_time_is_answered() {
    let windows = [
        window("allow", "0 0 29 2 *", "2562047h47m16s"),
        window("deny", NIGHT, "1ns"),
    ];
    let windows = SyncWindows::compile(&windows).applicable_to(&application());
    for years in [0, 50, 100, 1_000, 8_000] {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(years * 8_766);
        assert_eq!(windows.check_manual_sync(now), Ok(()), "{years}");
    }
}
