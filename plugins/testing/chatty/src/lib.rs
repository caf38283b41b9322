//! A filter that uses every import. For tests only.

use serde::Deserialize;
use tollgate_plugin::{
    Edit, HeaderFilter, Plans, Refusal, Request, clock, empty_plans, field, header_filter, log, random,
};

/// How much to log and to request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    /// Lines to log.
    lines: u32,
    /// Random bytes to ask for.
    bytes: u32,
}

#[derive(Debug)]
struct Chatty;

impl HeaderFilter for Chatty {
    type Config = Config;

    fn plan(_config: &Config) -> Result<Plans, String> {
        Ok(empty_plans())
    }

    fn filter_request(config: &Config, request: &Request) -> Result<Vec<Edit>, Refusal> {
        for line in 0..config.lines {
            log::write(
                log::Level::Info,
                &format!("line {line} of {}\r\nforged", request.context.path),
            );
        }
        let hex: String = random::bytes(config.bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(vec![
            Edit::Set(field("x-random", &hex)),
            Edit::Set(field("x-now", &clock::now().to_string())),
        ])
    }
}

header_filter!(Chatty);
