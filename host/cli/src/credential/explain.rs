//! `tollgate credential explain`: mints one credential of a cluster from a settings file, and
//! shows each request and the outcome.
//!
//! Security: no secret is shown, and the credential is revoked if its provider can do so.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::local::LocalClusters;
use super::{Failure, print_error};
use crate::format::Format;
use tollgate_gateway::cluster_access::ClusterAccess;
use tollgate_plugin::EgressRecord;
use tollgate_plugin::credential::cache::lifetime::{Lifetime, RenewalWindow};
use tollgate_plugin::credential::source::{CredentialSource, MintedCredential};
use tollgate_plugin::credential::{Credential, MintError, MintReason, MintRequest};

/// Time limit of the mint, as in the gateway.
const BUDGET: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
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

#[derive(tabled::Tabled)]
#[tabled(rename_all = "UPPERCASE")]
struct Row {
    method: String,
    host: String,
    path: String,
    status: String,
    ms: u64,
}

/// Runs the command: 0 for a credential, 1 for none.
pub(super) fn run(cluster: &str, settings: &Path, output: Format, out: &mut dyn Write) -> ExitCode {
    let outcome = LocalClusters::load(settings).and_then(|local| {
        let access = local.find(cluster)?;
        Ok(local.runtime.block_on(report(access)))
    });
    let printed = outcome.and_then(|report| {
        let text = match output {
            Format::Table => report.table(),
            Format::Json | Format::Yaml => output
                .document(&report)
                .map_err(|error| Failure::new("host.output", error))?,
        };
        writeln!(out, "{}", text.trim_end()).map_err(|error| Failure::new("host.output", error))?;
        Ok(report.failure.is_none())
    });
    match printed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            print_error(failure);
            ExitCode::FAILURE
        }
    }
}

async fn report(access: &ClusterAccess) -> Report {
    let mut report = Report::new(access);
    match access.credential_source() {
        CredentialSource::Static(lease) => report.credential(&lease.credential, None),
        CredentialSource::Unusable(error) => report.failure(error),
        CredentialSource::Minted(MintedCredential { slot, mint, warnings }) => {
            report.key = Some(slot.key().to_short());
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
            provider: access.provider().to_string(),
            key: None,
            requests: Vec::new(),
            result: "ok",
            failure: None,
            kind: None,
            expires_at: None,
            renewed_at: None,
            used_until: None,
            warnings: Vec::new(),
        }
    }

    fn failure(&mut self, error: &MintError) {
        self.result = error.class.as_str();
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
        let lifetime = credential
            .expires_at
            .map_or(Lifetime::Unknown, |end| Lifetime::Known(end.duration_since(started)));
        let Some(window) = RenewalWindow::for_lifetime(lifetime, 0.0) else {
            self.warnings.push("it ends too soon to be kept".to_owned());
            return;
        };
        let after = |wait: Duration| started.saturating_add(wait).ok().map(|at| at.to_string());
        self.renewed_at = after(window.refresh);
        self.used_until = after(window.unusable);
    }

    fn table(&self) -> String {
        let mut lines = vec![format!("cluster   {} {}", self.cluster, self.server)];
        lines.push(format!("provider  {}", self.provider));
        if let Some(key) = &self.key {
            lines.push(format!("key       {key}"));
        }
        if !self.requests.is_empty() {
            let mut table = tabled::Table::new(self.requests.iter().map(Row::of));
            table.with(tabled::settings::Style::blank());
            lines.push(String::new());
            lines.extend(table.to_string().lines().map(|line| line.trim().to_owned()));
            lines.push(String::new());
        }
        match &self.failure {
            Some(MintFailure { code, message, .. }) => {
                lines.push(format!("result    {} {code}: {message}", self.result));
            }
            None => lines.push(format!(
                "result    {} ({})",
                self.result,
                self.kind.unwrap_or("nothing")
            )),
        }
        let times = [
            ("expires", &self.expires_at),
            ("renewed", &self.renewed_at),
            ("used till", &self.used_until),
        ];
        for (name, at) in times {
            if let Some(at) = at {
                lines.push(format!("{name:<9} {at}"));
            }
        }
        lines.extend(self.warnings.iter().map(|warning| format!("warning   {warning}")));
        lines.join("\n")
    }
}

impl Row {
    fn of(record: &EgressRecord) -> Self {
        let status = record.status.map(|status| status.to_string());
        Self {
            method: record.method.clone(),
            host: record.host.clone(),
            path: record.path.clone(),
            status: status.or_else(|| record.error.clone()).unwrap_or_default(),
            ms: record.milliseconds,
        }
    }
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
