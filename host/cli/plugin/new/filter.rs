//! Marks requests with the team they come from, and refuses unknown teams.

use serde::Deserialize;
use tollgate_plugin::{
    Edit, HeaderFilter, Plan, Plans, Refusal, Request, empty_plan, field, header_filter, refuse, text,
};

/// What the operator configures; `configSchema` in `manifest.yaml` describes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Teams that may call; everybody when empty.
    teams: Vec<String>,
}

#[derive(Debug)]
struct Filter;

impl HeaderFilter for Filter {
    type Config = Config;

    /// Runs once, when the gateway loads the plugin. The gateway does the rest
    /// by itself, at no cost per request.
    fn plan(_config: &Config) -> Result<Plans, String> {
        let response = Plan { remove: vec!["x-powered-by".to_owned()], ..empty_plan() };
        Ok(Plans { request: empty_plan(), response })
    }

    /// Runs for each request, because `filters` in `manifest.yaml` says so.
    fn filter_request(config: &Config, request: &Request) -> Result<Vec<Edit>, Refusal> {
        let team = text(&request.fields, "x-team").unwrap_or("nobody");
        if !config.teams.is_empty() && !config.teams.iter().any(|known| known == team) {
            return Err(refuse(403, "your team is not known here"));
        }
        let caller = request.context.user.as_deref().unwrap_or("unknown");
        Ok(vec![Edit::Set(field("x-called-by", &format!("{caller} of {team}")))])
    }
}

header_filter!(Filter);
