//! What all pages have: navigation, the person who is signed in, the theme.

use http::request;
use jiff::Timestamp;
use serde::Deserialize;

use crate::text::{Text, Time};
use tollgate_front::console::{STYLE_PATH, Theme};

/// The person who is signed in.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Me {
    pub(crate) user: Text,
    pub(crate) issuer: Text,
    #[serde(default)]
    pub(crate) groups: Vec<Text>,
    login: Option<LoginRef>,
    /// Whom to ask for rights, as the settings say.
    #[serde(default)]
    pub(crate) contact: Option<Text>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoginRef {
    id: Text,
    expires_at: Timestamp,
}

/// An entry of the navigation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) path: &'static str,
    pub(crate) label: &'static str,
    pub(crate) icon: &'static str,
}

impl Entry {
    /// Outline of its icon, 16 by 16, as the attribute `d` of a path.
    pub(crate) fn drawing(&self) -> &'static str {
        match self.icon {
            "home" => "M2 8l6-5 6 5M4 7v6.500h8V7",
            "cluster" => "M8 2l5.500 3v6L8 14l-5.500-3V5zM8 8v6M8 8L2.500 5M8 8l5.500-3",
            "key" => "M9.500 6.500a3 3 0 1 0-3 3 3 3 0 0 0 2.120-.880L14 14v-3M11 11v2",
            "session" => "M2 3h12v8H2zM6 14h4M8 11v3M4.500 6l1.500 1.500L4.500 9M8 9h3",
            "decision" => "M8 2v4M8 6L3 10M8 6l5 4M1.500 10h3v3.500h-3zM11.500 10h3v3.500h-3z",
            "audit" => "M3 2h7l3 3v9H3zM5.500 7h5M5.500 9.500h5M5.500 12H9",
            "shield" => "M8 2l5 2v4c0 3-2 5-5 6-3-1-5-3-5-6V4zM6 8l1.500 1.500L10.500 6.500",
            "seal" => "M8 2a4 4 0 1 1 0 8 4 4 0 0 1 0-8M6 9.500L5 14l3-1.500L11 14l-1-4.500",
            "project" => "M2 4h4l1.500 2H14v7H2z",
            "identity" => {
                "M8 2a3 3 0 1 1 0 6 3 3 0 0 1 0-6M2.500 14c0-3 2.500-4.500 5.500-4.500s5.500 1.500 5.500 4.500"
            }
            "extension" => "M2 8h4M10 8h4M8 2v2M8 12v2M6 6h4v4H6z",
            "policy" => "M3 2h10v12H3zM5.500 5l1 1 1.500-2M9.500 5h1.500M5.500 9l1 1 1.500-2M9.500 9.500h1.500",
            "set" => "M2 5h9v9H2zM5 2h9v9M4.500 8h4M4.500 11h4",
            "plugin" => "M3 5h3V3.500a1.500 1.500 0 0 1 3 0V5h4v3.500h-1.500a1.500 1.500 0 0 0 0 3H13V14H3z",
            _ => "M2 3h12v4H2zM2 9h12v4H2zM4.500 5h.010M4.500 11h.010",
        }
    }
}

const OWN: [Entry; 6] = [
    Entry {
        path: "/console/",
        label: "Overview",
        icon: "home",
    },
    Entry {
        path: "/console/clusters",
        label: "Clusters",
        icon: "cluster",
    },
    Entry {
        path: "/console/tokens",
        label: "Access tokens",
        icon: "key",
    },
    Entry {
        path: "/console/sessions",
        label: "Sessions",
        icon: "session",
    },
    Entry {
        path: "/console/decisions",
        label: "Decisions",
        icon: "decision",
    },
    Entry {
        path: "/console/audit",
        label: "Audit log",
        icon: "audit",
    },
];
const GATEWAY: [Entry; 9] = [
    Entry {
        path: "/console/applicationsets",
        label: "ApplicationSets",
        icon: "set",
    },
    Entry {
        path: "/console/projects",
        label: "Projects",
        icon: "project",
    },
    Entry {
        path: "/console/identities",
        label: "Identities",
        icon: "identity",
    },
    Entry {
        path: "/console/extensions",
        label: "Extensions",
        icon: "extension",
    },
    Entry {
        path: "/console/policies",
        label: "Policies",
        icon: "policy",
    },
    Entry {
        path: "/console/permissions",
        label: "Permissions",
        icon: "shield",
    },
    Entry {
        path: "/console/credentials",
        label: "Credentials",
        icon: "seal",
    },
    Entry {
        path: "/console/plugins",
        label: "Plugins",
        icon: "plugin",
    },
    Entry {
        path: "/console/system",
        label: "System",
        icon: "system",
    },
];

/// What every page shows around its own content.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) me: Me,
    pub(crate) now: Timestamp,
    pub(crate) theme: Theme,
    /// Path of the page, as the navigation has it.
    active: String,
    /// Path and query of the page.
    pub(crate) address: String,
}

impl Frame {
    pub(crate) fn new(me: Me, head: &request::Parts) -> Self {
        let path = head.uri.path();
        let mut parts = path.trim_start_matches("/console").trim_matches('/').split('/');
        Self {
            me,
            now: Timestamp::now(),
            theme: Theme::of(&head.headers),
            active: format!("/console/{}", parts.next().unwrap_or_default()),
            address: head
                .uri
                .path_and_query()
                .map_or("/console/", |target| target.as_str())
                .to_owned(),
        }
    }

    pub(crate) fn own(&self) -> &'static [Entry] {
        &OWN
    }

    pub(crate) fn gateway(&self) -> &'static [Entry] {
        &GATEWAY
    }

    pub(crate) fn is_active(&self, entry: &Entry) -> bool {
        self.active == entry.path
    }

    pub(crate) fn style(&self) -> &'static str {
        STYLE_PATH.as_str()
    }

    pub(crate) fn script(&self) -> &'static str {
        crate::assets::SCRIPT_PATH.as_str()
    }

    pub(crate) fn themes(&self) -> [Theme; 3] {
        Theme::ALL
    }

    pub(crate) fn time(&self, at: &Timestamp) -> Time {
        Time::new(*at, self.now)
    }

    /// The session that this browser has.
    pub(crate) fn own_session(&self) -> Option<Text> {
        let login = self.me.login.as_ref()?;
        Some(Text::from(format!("login:{}", login.id.raw())))
    }

    /// When the person must sign in again.
    pub(crate) fn until(&self) -> Option<Time> {
        Some(self.time(&self.me.login.as_ref()?.expires_at))
    }
}
