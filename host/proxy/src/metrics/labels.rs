//! What the values of labels mean, for `docs/reference/metrics.md`.

/// The values of a label.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// The metrics for which it has these values; empty for all that have it.
    pub metrics: &'static [&'static str],
    /// The values.
    pub values: &'static str,
}

/// Every label of every metric, in order of the names.
pub const LABELS: [Label; 29] = [
    Label {
        name: "about",
        metrics: &[],
        values: "`impersonation` of service accounts, their `existence`, or keys of `extra`.",
    },
    Label {
        name: "agent",
        metrics: &[],
        values: "Number of the agent.",
    },
    Label {
        name: "bound",
        metrics: &[],
        values: "`address`: of one client address (IPv6: of one /64 network); `total`: of all.",
    },
    Label {
        name: "bundle",
        metrics: &[],
        values: "The folder below `policies`: `extensions`, `kubernetes`, `applications`, `applicationsets`, \
                 `argocd`, `controlplane`.",
    },
    Label {
        name: "class",
        metrics: &[],
        values: "Class of a failed mint: `retryable`, `denied` (the provider refused), `config`, `permanent`.",
    },
    Label {
        name: "cluster",
        metrics: &[],
        values: "Name of a cluster in the objects that the gateway reads; the server of a cluster without a \
                 name.",
    },
    Label {
        name: "event",
        metrics: &[],
        values: "`agent.connected`, `agent.disconnected`, `agent.refused`, or `replica.refused`: a connection \
                 at `connectors.peers.listen` without a finished handshake.",
    },
    Label {
        name: "extension",
        metrics: &[],
        values: "Name of the extension.",
    },
    Label {
        name: "front",
        metrics: &[],
        values: "`admission`, `agents`, `applications`, `applicationsets`, `argocd`, `clusters`, `console` \
                 (its pages, and sign-in), `control-plane`, `extensions`, `kubernetes`, `login` (API of \
                 `tollgate login`), `operations` (API about decisions, policies and the gateway itself), \
                 `access` (API for people and other gateways), `projects`, or `none` if the request ended \
                 before a front was chosen.",
    },
    Label {
        name: "kind",
        metrics: &["tollgate_credential_cache_entries"],
        values: "`slots`: clusters with a place in the cache; `live`: credentials in memory.",
    },
    Label {
        name: "kind",
        metrics: &["tollgate_objects_set_aside"],
        values: "`Application`, `ApplicationSet`, `AppProject`, `ArgoCDExtension`, `Service`, `Ingress`, \
                 `NetworkPolicy`.",
    },
    Label {
        name: "listener",
        metrics: &[],
        values: "`public`, `admission` (the webhook), `admin`.",
    },
    Label {
        name: "name",
        metrics: &[],
        values: "Name of the cluster or extension, or the setting of an `authority`; empty for others.",
    },
    Label {
        name: "operation",
        metrics: &["tollgate_store_seconds"],
        values: "`read`, `write`, `queue` (the wait of a change).",
    },
    Label {
        name: "operation",
        metrics: &["tollgate_store_failures_total"],
        values: "`read`, `write`; for work in the background, `audit`, `forget` (old rows), `revocations` or \
                 `seen` (active sessions).",
    },
    Label {
        name: "outcome",
        metrics: &[],
        values: "`allowed`; `denied` by authentication, a policy, a plugin or a limit; `failed` if a stage \
                 could not do its work; `cancelled` if the client disconnected.",
    },
    Label {
        name: "part",
        metrics: &[],
        values: "Part of the configuration: `state`, `policies`, `plugins`.",
    },
    Label {
        name: "reason",
        metrics: &["tollgate_decisions_total"],
        values: "Stable code of the decision record; see [Reasons](reasons.md).",
    },
    Label {
        name: "reason",
        metrics: &["tollgate_closed_streams_total"],
        values: "`revoked`, `expired`, `withdrawn` (the permission was withdrawn), `store_unavailable`, \
                 `revocations_unavailable`, `gateway_stopping`.",
    },
    Label {
        name: "reason",
        metrics: &["tollgate_connector_events_total", "tollgate_agent_events_total"],
        values: "`ok` for `agent.connected`; otherwise why the connector was refused or the connection ended, \
                 such as `no_answer`, `key_revoked`, `token_expired` or `already_connected`. `too_many`, \
                 `no_proof_in_time`, `proof_invalid`, `proof_unbound` and `proof_of_another_connection` count \
                 connections that proved no key; these are not in the audit log. `replica.refused` has \
                 `too_many`, `no_handshake_in_time` and `handshake_failed`.",
    },
    Label {
        name: "reason",
        metrics: &["tollgate_tls_handshakes_failed_total"],
        values: "`timeout`, `closed` (by the client), `client_certificate_missing`, \
                 `client_authority_unknown`, `client_certificate_expired`, `client_certificate_invalid`, \
                 `server_certificate_refused` (by the client), `other`.",
    },
    Label {
        name: "resource",
        metrics: &[],
        values: "Resource that the gateway watches, such as `applications.argoproj.io`.",
    },
    Label {
        name: "result",
        metrics: &[],
        values: "`ok`; the `class` of the failure; `cut-off` if the mint was cancelled.",
    },
    Label {
        name: "setting",
        metrics: &[],
        values: "Key in the settings, such as `argocd.ca`.",
    },
    Label {
        name: "stage",
        metrics: &[],
        values: "`authenticate`, `authorize` (RBAC and policies, and what they look up), `headers` (plugins), \
                 `forward` (until the upstream's response head).",
    },
    Label {
        name: "state",
        metrics: &[],
        values: "`granted`, `missing`, `unknown` (the cluster did not answer).",
    },
    Label {
        name: "status",
        metrics: &[],
        values: "Status of the response; 0 if it is none of HTTP's.",
    },
    Label {
        name: "use",
        metrics: &[],
        values: "`public`, `admission` (served there), `admission_clients` (the authorities of API servers), \
                 `state` (presented to the API server of the objects), `cluster`, `extension` (presented \
                 there), `authority` (the first to expire of those in a file by which a server is trusted).",
    },
    Label {
        name: "version",
        metrics: &[],
        values: "Version of the program.",
    },
];
