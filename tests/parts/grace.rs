//! What may kill the process waits until it has stopped by itself.

use std::time::Duration;

use serde_json::Value;

use test_support::world::checkout;
use tollgate_gateway::running::AFTER_DRAIN;

fn text(path: &str) -> String {
    std::fs::read_to_string(checkout().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn seconds(value: &Value) -> Duration {
    match value {
        Value::Number(number) => Duration::from_secs(number.as_u64().unwrap()),
        Value::String(text) => Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap()),
        other => panic!("no time: {other}"),
    }
}

/// The time from SIGTERM, and from what comes before it in a pod, to the kill.
struct Grace {
    place: &'static str,
    allowed: Duration,
    before: Duration,
    drain: Duration,
}

impl Grace {
    fn is_enough(&self) -> bool {
        self.allowed >= self.before + self.drain + AFTER_DRAIN
    }
}

fn of_pod(place: &'static str, pod: &Value, drain: &Value) -> Grace {
    let container = &pod["containers"][0];
    Grace {
        place,
        allowed: seconds(&pod["terminationGracePeriodSeconds"]),
        before: seconds(&container["lifecycle"]["preStop"]["sleep"]["seconds"]),
        drain: seconds(drain),
    }
}

#[test]
fn exceeds_the_drain_and_what_follows() {
    let deployment = yaml("deploy/kubernetes/base/deployment.yaml");
    let settings = yaml("deploy/kubernetes/base/tollgate.yaml");
    let values = yaml("deploy/helm/tollgate/values.yaml");
    let unit = text("deploy/tollgate.service");
    let stop = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
    // The chart has this in its template.
    let template = text("deploy/helm/tollgate/templates/deployment.yaml");
    assert!(template.contains("terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}"));
    assert!(template.contains("preStop:\n              sleep: { seconds: 10 }"));
    let all = [
        of_pod(
            "the manifests",
            &deployment["spec"]["template"]["spec"],
            &settings["drain"],
        ),
        Grace {
            place: "the chart",
            allowed: seconds(&values["terminationGracePeriodSeconds"]),
            before: Duration::from_secs(10),
            drain: seconds(&values["settings"]["drain"]),
        },
        Grace {
            place: "systemd",
            allowed: seconds(&stop.unwrap().into()),
            before: Duration::ZERO,
            drain: seconds(&yaml("deploy/tollgate.yaml")["drain"]),
        },
    ];
    for grace in all {
        assert!(
            grace.is_enough(),
            "{} allow {:?}, and {:?} before the drain of {:?} and {AFTER_DRAIN:?} after it need more",
            grace.place,
            grace.allowed,
            grace.before,
            grace.drain
        );
    }
    // Without the time before SIGTERM, the check would pass what is too short.
    let short = Grace {
        place: "",
        allowed: Duration::from_secs(69),
        before: Duration::from_secs(10),
        drain: Duration::from_secs(30),
    };
    assert!(!short.is_enough());
}
