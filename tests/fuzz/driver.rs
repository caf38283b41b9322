//! Runs one fuzz target under libFuzzer; `cargo xtask fuzz` builds and starts it.
//!
//! libFuzzer reads the arguments, so the driver is configured by environment variables:
//! - `TOLLGATE_FUZZ_LIST`: print the names of all targets, one per line, and exit.
//! - `TOLLGATE_FUZZ_TARGET`: the target to run.
//! - `TOLLGATE_FUZZ_CORPUS`: the folder to write the target's seeds to, before libFuzzer reads it.
#![cfg_attr(fuzzing, no_main)]

#[cfg(not(fuzzing))]
fn main() -> Result<(), &'static str> {
    Err("this build has no fuzz targets: run `cargo xtask fuzz`")
}

#[cfg(fuzzing)]
mod fuzz {
    use std::path::Path;
    use std::sync::OnceLock;

    use tollgate_fuzz::Target;
    use tollgate_gateway::fuzz::targets;

    static TARGET: OnceLock<Target> = OnceLock::new();

    #[expect(clippy::disallowed_methods, reason = "libFuzzer owns the arguments")]
    fn variable(name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn begin() {
        if variable("TOLLGATE_FUZZ_LIST").is_some() {
            for target in targets() {
                println!("{}", target.name);
            }
            std::process::exit(0);
        }
        let name = variable("TOLLGATE_FUZZ_TARGET").expect("TOLLGATE_FUZZ_TARGET is not set");
        let target = targets().into_iter().find(|target| target.name == name);
        let target = target.unwrap_or_else(|| panic!("there is no target `{name}`"));
        if let Some(corpus) = variable("TOLLGATE_FUZZ_CORPUS") {
            for (number, seed) in (target.seeds)().into_iter().enumerate() {
                std::fs::write(Path::new(&corpus).join(format!("seed-{number:04}")), seed).expect("writing a seed");
            }
        }
        TARGET.get_or_init(|| target);
    }

    libfuzzer_sys::fuzz_target!(init: begin(), |data: &[u8]| {
        if let Some(target) = TARGET.get() {
            (target.run)(data);
        }
    });
}
