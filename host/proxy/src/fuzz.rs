//! The fuzz targets of this crate.

use tollgate_fuzz::Target;

/// Every target of this crate.
pub fn targets() -> Vec<Target> {
    use crate::client::fuzz::{FORWARDED, PROXY_PROTOCOL};
    use crate::server::fuzz::FRAMING;
    [FRAMING, FORWARDED, PROXY_PROTOCOL].concat()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_target_holds_on_its_seeds_earlier_finds_and_mutations() {
        tollgate_fuzz::check(&super::targets());
    }
}
