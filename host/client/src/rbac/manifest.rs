//! `tollgate rbac manifest`: prints the Kubernetes roles the gateway's identity needs to
//! impersonate people, or the service accounts of Applications, as YAML for `kubectl apply`. It
//! reads the settings, the state folder and the mapping policy.
//!
//! Security: the output has the roles of one cluster, and names only the requested service
//! accounts.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::answer::{Error, SettingsArgs, require_loaded};
use crate::format::Format;
use tollgate_config::raw;
use tollgate_objects::Resources;
use tollgate_objects::agent::{AgentBinding, AgentObject};
use tollgate_policy::gateway_rights::grants::{ImpersonationGrants, NameSources};
use tollgate_policy::gateway_rights::manifest::{
    ConstrainedPermissions, ServiceAccount, Subject, classic, constrained, service_account,
};
use tollgate_policy::impersonate::ImpersonationMapping;
use tollgate_state::source;

mod applications;

/// Paths that kubectl and other clients read for discovery: those of Kubernetes' role
/// `system:discovery`.
const DISCOVERY: &str = "/api,/api/*,/apis,/apis/*,/openapi,/openapi/*,/version,/version/,/healthz,/livez,/readyz";

#[derive(Args, Clone, Debug)]
pub struct ManifestArgs {
    /// Agents of one cluster, by name or number; if omitted, all agents
    #[arg(long = "agent", value_name = "NAME|ID", num_args = 1..)]
    agents: Vec<String>,
    /// Print roles for the service accounts of Applications, not for users of agents
    #[arg(long, conflicts_with_all = ["agents", "service_accounts"])]
    applications: bool,
    /// Cluster of the Applications, by name or API server URL; required if they use several
    #[arg(long, value_name = "NAME", requires = "applications")]
    cluster: Option<String>,
    /// Also let the gateway check whether the service accounts exist
    #[arg(long, requires = "applications")]
    with_account_check: bool,
    /// Kind of impersonation to permit
    #[arg(long, value_enum, default_value_t)]
    mode: ModeArg,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Identity of the gateway in the cluster: serviceaccount:NAMESPACE:NAME, user:NAME or group:NAME
    #[arg(long, default_value = "serviceaccount:tollgate:tollgate", value_parser = parse_subject)]
    subject: Subject,
    /// Verbs that impersonated requests may have, in mode `constrained` or `both`
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "get,list,watch,create,update,patch,delete,deletecollection"
    )]
    verbs: Vec<String>,
    /// Resources of these requests, such as pods, pods/log or deployments.apps
    #[arg(long, value_delimiter = ',', default_value = "*")]
    resources: Vec<String>,
    /// Non-resource paths that these requests may get
    #[arg(long, value_delimiter = ',', default_value = DISCOVERY)]
    urls: Vec<String>,
    /// Service account that the mapping policy names, in mode `classic`; may be repeated
    #[arg(long = "service-account", value_name = "NAMESPACE:NAME", value_parser = account)]
    service_accounts: Vec<ServiceAccount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    /// Verb `impersonate`, which every Kubernetes version has
    #[default]
    Classic,
    /// Verb `impersonate:user-info` or `impersonate:serviceaccount`, limited to certain requests; from
    /// Kubernetes 1.36
    Constrained,
    /// Both; the cluster tries the constrained one first, the classic one permits more
    Both,
}

/// What the gateway needs to impersonate the users of `agents`, which are all of one cluster.
struct RequiredGrants {
    cluster: String,
    /// Names and numbers, as a list.
    agents: String,
    grants: ImpersonationGrants,
}

pub(super) fn run(args: &ManifestArgs, out: &mut dyn Write, stderr: &mut dyn Write) -> Result<u8, Error> {
    if args.applications {
        return applications::run(args, out, stderr);
    }
    let RequiredGrants {
        cluster,
        agents,
        grants,
    } = args.required_grants()?;
    if grants.is_empty() {
        writeln!(
            out,
            "# Cluster {cluster}: {agents} act in nobody's name, so no role is needed."
        )?;
        return Ok(0);
    }
    if args.mode != ModeArg::Classic {
        if !args.service_accounts.is_empty() {
            let message = "--service-account needs `--mode classic`: constrained impersonation of service accounts \
                           takes neither groups nor extra";
            return Err(Error::Usage(message.to_owned()));
        }
        for key in grants.unconstrainable() {
            writeln!(
                stderr,
                "tollgate: `{key}` has no domain and path, so constrained impersonation refuses it"
            )?;
        }
    }
    writeln!(
        out,
        "# Cluster {cluster}: lets the gateway act in people's names for {agents}."
    )?;
    let mut parts = Vec::new();
    if args.mode != ModeArg::Constrained {
        parts.push((
            "A subject with this role can act as anybody in the cluster, including administrators.",
            classic(&grants, &args.subject),
        ));
    }
    for account in &args.service_accounts {
        parts.push(("One service account.", service_account(account, &args.subject)));
    }
    if args.mode != ModeArg::Classic {
        parts.push((
            "Kubernetes 1.36 and later. A subject with this role can act as people with these verbs only.",
            constrained(&grants, &args.permissions(), &args.subject),
        ));
    }
    print_parts(parts, out)
}

fn print_parts(parts: Vec<(&str, Vec<Value>)>, out: &mut dyn Write) -> Result<u8, Error> {
    for (comment, objects) in parts {
        writeln!(out, "# {comment}")?;
        for object in objects {
            writeln!(out, "---")?;
            Format::Yaml.print(&object, out)?;
        }
    }
    Ok(0)
}

impl ManifestArgs {
    fn permissions(&self) -> ConstrainedPermissions {
        ConstrainedPermissions {
            verbs: self.verbs.clone(),
            resources: self.resources.clone(),
            urls: self.urls.clone(),
        }
    }

    fn required_grants(&self) -> Result<RequiredGrants, Error> {
        let config = require_loaded(raw::load(&self.settings.config))?;
        let Some(settings) = &config.kubernetes else {
            return Err(Error::Failed("the settings have no `kubernetes`".to_owned()));
        };
        let resources = require_loaded(source::load_once(&config))?;
        let folder = config.policies_directory.join("kubernetes");
        let mapping = &require_loaded(ImpersonationMapping::load(&folder, settings.max_groups))?;
        let selected = self.selected_agents(&resources)?;
        let Some((_, first)) = selected.first() else {
            return Err(Error::Failed("the state folder has no agents".to_owned()));
        };
        if let Some((agent, binding)) = selected.iter().find(|(_, binding)| binding.cluster != first.cluster) {
            return Err(Error::Usage(format!(
                "`{}` is an agent of cluster `{}`, others are of `{}`: name agents of one cluster with --agent",
                agent.name, binding.cluster, first.cluster
            )));
        }
        let grants = selected
            .iter()
            .map(|(agent, _)| ImpersonationGrants::of(agent, NameSources { settings, mapping }));
        let names = selected
            .iter()
            .map(|(agent, binding)| format!("{} ({})", agent.name, binding.id));
        Ok(RequiredGrants {
            cluster: first.cluster.clone(),
            agents: names.collect::<Vec<_>>().join(", "),
            grants: grants.fold(ImpersonationGrants::default(), ImpersonationGrants::union),
        })
    }

    /// The agents that `--agent` names, each once, or all.
    fn selected_agents<'a>(&self, resources: &'a Resources) -> Result<Vec<(&'a AgentObject, &'a AgentBinding)>, Error> {
        let bound = |agent: &'a AgentObject| Some((agent, agent.binding.as_ref()?));
        let mut all: Vec<_> = resources.agents.values().filter_map(|agent| bound(agent)).collect();
        let is = |(agent, binding): &(&AgentObject, &AgentBinding), text: &str| {
            agent.name == text || binding.id.to_string() == text
        };
        if let Some(text) = self.agents.iter().find(|text| !all.iter().any(|agent| is(agent, text))) {
            let names: Vec<&str> = all.iter().map(|(agent, _)| agent.name.as_str()).collect();
            let names = names.join(", ");
            return Err(Error::Failed(format!("there is no agent `{text}`; there are {names}")));
        }
        all.retain(|agent| self.agents.is_empty() || self.agents.iter().any(|text| is(agent, text)));
        Ok(all)
    }
}

/// Reads `serviceaccount:NAMESPACE:NAME`, `user:NAME` or `group:NAME`.
pub fn parse_subject(text: &str) -> Result<Subject, &'static str> {
    let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    let service_account = |ServiceAccount { namespace, name }| Subject::ServiceAccount { namespace, name };
    let subject = match text.split_once(':') {
        Some(("serviceaccount", rest)) => account(rest).ok().map(service_account),
        Some(("user", name)) => named(name).map(Subject::User),
        Some(("group", name)) => named(name).map(Subject::Group),
        Some(_) | None => None,
    };
    subject.ok_or("is none of serviceaccount:NAMESPACE:NAME, user:NAME, group:NAME")
}

fn account(text: &str) -> Result<ServiceAccount, &'static str> {
    match text.split_once(':') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains(':') => {
            Ok(ServiceAccount {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        }
        Some(_) | None => Err("is not NAMESPACE:NAME"),
    }
}

#[cfg(test)]
mod tests;
