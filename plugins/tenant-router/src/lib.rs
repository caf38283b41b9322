//! The filter `tenant-router`: sets the tenant of a request for a multi-tenant backend. The tenant
//! depends on the application's project or on the caller's groups. A client may choose among its
//! own tenants.
//!
//! Security: only tenants that the operator lists are set.

use std::collections::BTreeMap;

use serde::Deserialize;
use tollgate_plugin::{
    Context, Edit, HeaderFilter, Plan, Plans, Refusal, Request, empty_plan, field, header_filter, refuse, text,
};

/// The field in which a client may name a tenant, and from which the backend reads it. The
/// manifest's `requestFields` lists it.
const TENANT_FIELD: &str = "x-scope-orgid";

/// The tenants of projects and groups.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Tenant by project name.
    projects: BTreeMap<String, String>,
    /// Tenant by group name. A caller may choose among the tenants of their groups.
    groups: BTreeMap<String, String>,
    /// Tenant of all other requests. Without it they are refused with 403.
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

/// The tenant of a request: `wanted` if the caller has it, else the caller's only tenant, else the
/// fallback. The caller has the project's tenant if there is one, else those of their groups, and
/// may also choose the fallback.
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
