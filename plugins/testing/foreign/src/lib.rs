//! A filter that imports WASI, as guests in languages with a runtime do, and reports in header
//! fields what WASI returns. For tests only.

use tollgate_plugin::{Edit, HeaderFilter, Plans, Refusal, Request, empty_plans, field, header_filter};

mod bindings {
    wit_bindgen::generate!({ path: "wit", world: "foreign", generate_all });
}

use bindings::wasi::{
    cli::environment, clocks::monotonic_clock, clocks::wall_clock, filesystem::preopens, random::random,
};

#[derive(Debug)]
struct Foreign;

impl HeaderFilter for Foreign {
    type Config = ();

    fn plan(_config: &()) -> Result<Plans, String> {
        Ok(empty_plans())
    }

    fn filter_request(_config: &(), _request: &Request) -> Result<Vec<Edit>, Refusal> {
        let random = random::get_random_bytes(8)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        let seen = [
            ("x-environment", environment::get_environment().len().to_string()),
            ("x-preopens", preopens::get_directories().len().to_string()),
            ("x-wall", wall_clock::now().seconds.to_string()),
            ("x-monotonic", monotonic_clock::now().to_string()),
            ("x-random", random),
        ];
        Ok(seen
            .into_iter()
            .map(|(name, value)| Edit::Set(field(name, &value)))
            .collect())
    }
}

header_filter!(Foreign);
