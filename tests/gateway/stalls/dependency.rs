//! One thing that the gateway depends on, and what its stall does.

use std::any::Any;
use std::process::Stdio;

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::process::Process;
use test_support::relay::{Mode, Relay};
use test_support::world::{self, CONTROL_PLANE, Setup, checkout, object};

/// Makes something stall (`true`), or answer.
pub(super) type Set = Box<dyn Fn(bool) + Send>;

/// Whether something works again.
pub(super) type Works = Box<dyn Fn() -> bool + Send>;

/// What a row of the table says.
pub(super) struct Dependency {
    /// Settings of the gateway.
    pub(super) settings: Value,
    /// Its standard error, if something reads it.
    pub(super) log: Option<Stdio>,
    /// A program with arguments that starts the gateway; nothing if it is started directly.
    pub(super) through: Vec<String>,
    pub(super) set: Set,
    /// What needs it, if a request does.
    pub(super) needs: Option<Needs>,
    /// The status of the answer to those who do not need it.
    pub(super) others: u16,
    pub(super) sign: Sign,
    /// Whether only thousands of requests fill its queue.
    pub(super) needs_many_requests: bool,
    pub(super) ends: End,
    /// Writes an object where the gateway reads them, if that is not a folder.
    pub(super) put: Option<Box<dyn Fn(Value) + Send>>,
    /// Whether it works again, as far as no metric says so.
    pub(super) works: Works,
    /// What lives as long as the row.
    pub(super) kept: Vec<Box<dyn Any + Send>>,
}

/// A request that needs what stalls.
pub(super) struct Needs {
    pub(super) request: Box<dyn Fn(&Process) -> RequestBuilder + Send>,
    /// The front that answers it.
    pub(super) front: &'static str,
    /// How many wait for it.
    pub(super) waiting: usize,
    /// The status while it works.
    pub(super) works: u16,
    /// Whether it is asked before the stall, too. What the gateway remembers needs nobody.
    pub(super) is_asked_before: bool,
    pub(super) meanwhile: Meanwhile,
}

impl Needs {
    pub(super) fn request(&self, gateway: &Process) -> RequestBuilder {
        (self.request)(gateway)
    }
}

/// What a request gets while it stalls.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meanwhile {
    /// Nothing.
    Waits,
    /// This status, after a time limit.
    Refused(u16),
}

/// What says that it stalls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    pub(super) series: &'static str,
    /// What the value is while it stalls.
    pub(super) while_stalled: fn(f64) -> bool,
    /// What it is afterwards. Counters stay.
    pub(super) afterwards: fn(f64) -> bool,
    pub(super) alert: &'static str,
}

impl Sign {
    /// A counter that something was added to.
    pub(super) fn counter(series: &'static str, alert: &'static str) -> Self {
        Self {
            series,
            while_stalled: |value| value > 0.0,
            afterwards: |_| true,
            alert,
        }
    }

    /// A gauge that is 0 when all is well.
    pub(super) fn gauge(series: &'static str, alert: &'static str) -> Self {
        Self {
            afterwards: |value| value == 0.0,
            ..Self::counter(series, alert)
        }
    }
}

/// How what was open before ends while it stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its right is withdrawn.
    WhenWithdrawn,
    /// The gateway cannot know whether it was revoked.
    ByItself,
    /// Its right is withdrawn, which nobody can know before what stalls answers again.
    WhenItAnswers,
}

impl Dependency {
    /// The usual row. Nothing needs it but what `needs` says.
    pub(super) fn new(settings: Value, sign: Sign) -> Self {
        Self {
            settings,
            log: None,
            through: Vec::new(),
            set: Box::new(|_| {}),
            needs: None,
            others: 200,
            sign,
            needs_many_requests: false,
            ends: End::WhenWithdrawn,
            put: None,
            works: Box::new(|| true),
            kept: Vec::new(),
        }
    }

    /// Replaces everybody's rights, as an operator does.
    pub(super) fn set_policy(&self, world: &World, policy: &str) {
        let data = json!({"data": {"policy.csv": policy}});
        let object = object("v1", "ConfigMap", "argocd-rbac-cm", CONTROL_PLANE, data);
        match &self.put {
            Some(put) => put(object),
            None => world.put(&object),
        }
    }

    /// A server behind this relay.
    pub(super) fn relayed(mut self, relay: Relay) -> Self {
        self.set = Box::new(move |stalls| {
            relay.set(match stalls {
                true => Mode::Stall,
                false => Mode::Pass,
            });
        });
        self
    }
}

/// The alert is among the shipped ones, and asks for the metric.
pub(super) fn assert_alert(sign: &Sign) {
    let text = std::fs::read_to_string(checkout().join("deploy/monitoring/rules.yaml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["alert"] == sign.alert);
    let expression = rule.unwrap_or_else(|| panic!("no alert {}", sign.alert))["expr"]
        .as_str()
        .unwrap();
    let family = sign.series.split('{').next().unwrap();
    assert!(expression.contains(family), "{}: {expression}", sign.alert);
}

/// Rights to everything in these tests.
pub(super) fn policy(people: &[&str]) -> String {
    let rows = [
        "applications, *, shop/*",
        "applicationsets, *, shop/*",
        "extensions, invoke, *",
        "clusters, *, *",
        "repositories, get, *",
    ];
    let of = |person: &&str| rows.map(|row| format!("p, {person}, {row}, allow\n")).concat();
    people.iter().map(of).collect()
}

/// A folder with settings and objects. Its own gateway is not asked anything.
pub(super) struct World(world::World);

impl World {
    pub(super) async fn start(setup: Setup) -> Self {
        Self(setup.start().await)
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path(name)
    }

    /// Replaces `argocd-rbac-cm`.
    fn put(&self, rbac_cm: &Value) {
        let (new, file) = (self.path("state/001.new"), self.path("state/001.yaml"));
        std::fs::write(&new, rbac_cm.to_string()).unwrap();
        std::fs::rename(new, file).unwrap();
    }
}
