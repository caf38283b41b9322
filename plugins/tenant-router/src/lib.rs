//! Tells a multi-tenant backend which tenant a request belongs to.
//!
//! The tenant comes from the project of the application, or from one of the
//! caller's groups; never from what the client says. In: project, groups and
//! the client's own tenant field. Out: the tenant field, or a refusal. Never: a
//! tenant the operator did not list.

use std::collections::BTreeMap;

use serde::Deserialize;
use tollgate_plugin::{
    Context, Edit, HeaderFilter, Plan, Plans, Refusal, Request, empty_plan, field, header_filter, refuse, text,
};

/// Field the client may name a tenant in and the backend reads, unless
/// configured otherwise. The manifest's `requestFields` lists it.
const TENANT_FIELD: &str = "x-scope-orgid";

/// Who belongs where.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Tenant by project name.
    projects: BTreeMap<String, String>,
    /// Tenant by group name; a caller may choose among the tenants of their groups.
    groups: BTreeMap<String, String>,
    /// Tenant of everybody else; refused with 403 when absent.
    fallback: Option<String>,
}

#[derive(Debug)]
struct TenantRouter;

impl HeaderFilter for TenantRouter {
    type Config = Config;

    fn plan(config: &Config) -> Result<Plans, String> {
        let tenants = config
            .projects
            .values()
            .chain(config.groups.values())
            .chain(&config.fallback);
        for tenant in tenants {
            let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if tenant.is_empty() || tenant.len() > 150 || !tenant.bytes().all(good) {
                return Err(format!(
                    "tenant `{tenant}` is not made of 1 to 150 letters, digits, `-`, `_` and `.`"
                ));
            }
        }
        let hidden = Plan {
            remove: vec!["x-tenant-debug".to_owned()],
            ..empty_plan()
        };
        Ok(Plans {
            request: empty_plan(),
            response: hidden,
        })
    }

    fn filter_request(config: &Config, request: &Request) -> Result<Vec<Edit>, Refusal> {
        let wanted = text(&request.fields, TENANT_FIELD);
        let tenant = choose(config, &request.context, wanted)?;
        Ok(vec![Edit::Set(field(TENANT_FIELD, tenant))])
    }
}

/// The tenant of this request: the project's, else the wanted one when a group
/// of the caller has it, else the caller's only one, else the fallback.
fn choose<'a>(config: &'a Config, context: &Context, wanted: Option<&str>) -> Result<&'a str, Refusal> {
    let theirs: Vec<&str> = match context
        .project
        .as_ref()
        .and_then(|project| config.projects.get(project))
    {
        Some(tenant) => vec![tenant],
        None => context
            .groups
            .iter()
            .filter_map(|group| Some(config.groups.get(group)?.as_str()))
            .collect(),
    };
    match wanted {
        Some(wanted) => theirs
            .into_iter()
            .chain(config.fallback.as_deref())
            .find(|tenant| *tenant == wanted)
            .ok_or_else(|| refuse(403, "the tenant asked for is not yours")),
        None => match (theirs.as_slice(), config.fallback.as_deref()) {
            ([], None) => Err(refuse(403, "you belong to no tenant")),
            ([], Some(fallback)) => Ok(fallback),
            ([only], _) => Ok(only),
            ([first, rest @ ..], _) if rest.iter().all(|other| other == first) => Ok(first),
            _ => Err(refuse(
                400,
                "you belong to several tenants: name one in the field x-scope-orgid",
            )),
        },
    }
}

header_filter!(TenantRouter);
