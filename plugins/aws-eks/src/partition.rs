//! Regional endpoints of STS. The global endpoint is not used, because verifiers outside the
//! partition `aws` refuse it.
//!
//! Source: `partitions.json` of botocore.

/// Prefixes of region names, and the domain of their hosts. The last entry is for the partitions
/// `aws` and `aws-us-gov`.
const PARTITIONS: [(&str, &str); 7] = [
    ("cn-", "amazonaws.com.cn"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
    ("us-iso-", "c2s.ic.gov"),
    ("eusc-", "amazonaws.eu"),
    ("", "amazonaws.com"),
];

/// The host of STS in `region`.
pub fn sts_host(region: &str) -> String {
    let found = PARTITIONS.iter().find(|(prefix, _)| region.starts_with(prefix));
    let suffix = found.map_or("amazonaws.com", |(_, suffix)| suffix);
    format!("sts.{region}.{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_has_its_endpoint() {
        for (region, host) in [
            ("us-west-2", "sts.us-west-2.amazonaws.com"),
            ("us-gov-west-1", "sts.us-gov-west-1.amazonaws.com"),
            ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
            ("us-iso-east-1", "sts.us-iso-east-1.c2s.ic.gov"),
            ("us-isob-east-1", "sts.us-isob-east-1.sc2s.sgov.gov"),
            ("us-isof-south-1", "sts.us-isof-south-1.csp.hci.ic.gov"),
            ("eu-isoe-west-1", "sts.eu-isoe-west-1.cloud.adc-e.uk"),
            ("eusc-de-east-1", "sts.eusc-de-east-1.amazonaws.eu"),
        ] {
            assert_eq!(sts_host(region), host);
        }
    }

    #[test]
    fn the_manifest_lists_every_endpoint() {
        let manifest = include_str!("../manifest.yaml");
        for (_, suffix) in PARTITIONS {
            let line = format!("  - \"sts.{{region}}.{suffix}\"\n");
            assert!(manifest.contains(&line), "{suffix}");
        }
    }
}
