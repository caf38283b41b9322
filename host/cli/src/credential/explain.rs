//! `tollgate credential explain`: mints one credential of a cluster from a settings file, and
//! shows each request and the outcome.
//!
//! Security: no secret is shown, and the credential is revoked if its provider can do so.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::local::LocalClusters;
use super::{Explain, Failure};
use tollgate_client::exit_code;
use tollgate_client::list_output::{aligned, render_flush};
use tollgate_cluster::access::ClusterAccess;
use tollgate_credential::cache::lifetime::RenewalWindow;
use tollgate_credential::{Credential, MintError, MintReason, MintRequest};
use tollgate_plugin::EgressRecord;
use tollgate_plugin::credential_source::{CredentialSource, MintedCredential};

/// Time limit of the mint, as in the gateway.
const BUDGET: Duration = Duration::from_secs(10);

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    cluster: String,
    server: String,
    provider: String,
    /// First digits of the key in the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    requests: Vec<EgressRecord>,
    /// `ok`, or the class of the failure.
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<MintFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// When the credential expires; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// When the gateway would renew it, and stop using it.
    #[serde(skip_serializing_if = "Option::is_none")]
    renewed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_until: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct MintFailure {
    code: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    http_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation: Option<String>,
}

impl Explain {
    /// Returns 0 for a credential, 1 for none.
    pub(super) fn run(&self, out: &mut dyn Write) -> Result<ExitCode, Failure> {
        let local = LocalClusters::load(&self.settings.config)?;
        let report = local.runtime.block_on(report(local.find(&self.cluster)?));
        self.output.show(&report, Report::table, out)?;
        Ok(exit_code(report.failure.is_none()))
    }
}

async fn report(access: &ClusterAccess) -> Report {
    let mut report = Report::new(access);
    match access.credential_source() {
        CredentialSource::Static(lease) => report.credential(&lease.credential, None),
        CredentialSource::Unusable(error) => report.failure(error),
        CredentialSource::Minted(MintedCredential { slot, mint, warnings }) => {
            report.key = Some(slot.key.to_short());
            report.warnings.clone_from(warnings);
            let started = Timestamp::now();
            let Some(mint) = mint else {
                match access.lease().await {
                    Ok(lease) => report.credential(&lease.credential, Some(started)),
                    Err(error) => report.failure(&MintError::new(error.class(), error.code(), &error.to_string())),
                }
                return report;
            };
            let (minted, requests) = mint
                .mint_traced(MintRequest {
                    reason: MintReason::Initial,
                    previous_expiry: None,
                    budget: BUDGET,
                })
                .await;
            report.requests = requests;
            match minted {
                Err(error) => report.failure(&error),
                Ok(credential) => {
                    report.credential(&credential, Some(started));
                    if let Some(revocation) = &credential.revocation
                        && let Err(error) = mint.revoke_now(revocation).await
                    {
                        report.warnings.push(format!("it could not be revoked: {error}"));
                    }
                }
            }
        }
    }
    report
}

impl Report {
    fn new(access: &ClusterAccess) -> Self {
        let cluster = access.cluster();
        Self {
            cluster: cluster.name.clone(),
            server: cluster.server.clone(),
            provider: access.provider.to_string(),
            result: "ok",
            ..Self::default()
        }
    }

    fn failure(&mut self, error: &MintError) {
        self.result = error.class.into();
        self.failure = Some(MintFailure {
            code: error.code.clone(),
            message: error.message.clone(),
            http_status: error.http_status,
            correlation: error.correlation.clone(),
        });
    }

    /// - `started`: when its mint began; `None` for a static credential.
    fn credential(&mut self, credential: &Credential, started: Option<Timestamp>) {
        self.kind = Some(kind(credential));
        self.expires_at = credential.expires_at.map(|end| end.to_string());
        self.warnings.extend(credential.warnings.iter().cloned());
        let Some(started) = started else { return };
        if !credential.cacheable {
            self.warnings.push("it serves one request only".to_owned());
            return;
        }
        let lifetime = credential.expires_at.map(|end| end.duration_since(started));
        let Some(window) = RenewalWindow::for_lifetime(lifetime, 0.0) else {
            self.warnings.push("it ends too soon to be kept".to_owned());
            return;
        };
        let after = |wait: Duration| started.saturating_add(wait).ok().map(|at| at.to_string());
        self.renewed_at = after(window.refresh);
        self.used_until = after(window.unusable);
    }

    fn table(&self) -> String {
        let mut facts = vec![
            ("cluster", format!("{} {}", self.cluster, self.server)),
            ("provider", self.provider.clone()),
        ];
        facts.extend(self.key.iter().map(|key| ("key", key.clone())));
        let mut text = aligned(10, &facts);
        if !self.requests.is_empty() {
            let head = ["METHOD", "HOST", "PATH", "STATUS", "MS"];
            let table = render_flush(&head, self.requests.iter().map(row));
            text.push_str(&format!("\n\n{table}\n"));
        }
        let result = match &self.failure {
            Some(MintFailure { code, message, .. }) => format!("{} {code}: {message}", self.result),
            None => format!("{} ({})", self.result, self.kind.unwrap_or("nothing")),
        };
        let mut facts = vec![("result", result)];
        for (name, at) in [
            ("expires", &self.expires_at),
            ("renewed", &self.renewed_at),
            ("used till", &self.used_until),
        ] {
            facts.extend(at.iter().map(|at| (name, at.clone())));
        }
        facts.extend(self.warnings.iter().map(|warning| ("warning", warning.clone())));
        format!("{text}\n{}", aligned(10, &facts))
    }
}

fn row(record: &EgressRecord) -> [String; 5] {
    let status = record.status.map(|status| status.to_string());
    [
        record.method.to_owned(),
        record.host.clone(),
        record.path.clone(),
        status.or_else(|| record.error.clone()).unwrap_or_default(),
        record.milliseconds.to_string(),
    ]
}

fn kind(credential: &Credential) -> &'static str {
    match (&credential.token, &credential.certificate, &credential.basic) {
        (Some(_), Some(_), _) => "token and client certificate",
        (Some(_), None, _) => "token",
        (None, Some(_), _) => "client certificate",
        (None, None, Some(_)) => "user and password",
        (None, None, None) if credential.headers.is_empty() => "nothing",
        (None, None, None) => "header fields",
    }
}
