//! Tests the runner: a case with a wrong expectation must fail. Each mutation changes a field that
//! a runner could read without comparing it.

use std::io::Write;
use std::path::Path;

use serde_json::Value;

use crate::suite::{Outcomes, Table};
use crate::{Tally, run_case};

/// Changes of one case, by JSON pointer.
struct Mutation {
    table: &'static str,
    id: &'static str,
    /// Pointer and JSON text.
    changes: &'static [(&'static str, &'static str)],
}

const MUTATIONS: &[Mutation] = &[
    // If several statuses are allowed, only one is the gateway's.
    Mutation {
        table: "kubernetes_access",
        id: "upstream-401-is-our-fault",
        changes: &[("/expect/status", "401"), ("/expect/status_alt", "[500, 502, 503]")],
    },
    Mutation {
        table: "kubernetes_access",
        id: "imp-user",
        changes: &[("/expect/status", "403"), ("/expect/status_alt", "[400, 502]")],
    },
    // Fields that could be mistaken for documentation.
    Mutation {
        table: "providers",
        id: "ex-webapi-034-expires-garbage",
        changes: &[("/expect/warn", "\"all is well\"")],
    },
    Mutation {
        table: "providers",
        id: "ex-gke-003-invalid-grant-skew",
        changes: &[("/expect/hint", "\"the weather\"")],
    },
    Mutation {
        table: "providers",
        id: "ex-webapi-040-fixed-ttl",
        changes: &[("/expect/expiry_source", "\"sibling expires_in\"")],
    },
    Mutation {
        table: "providers",
        id: "ex-webapi-035-jwt-exp",
        changes: &[("/expect/expiry_source", "\"config ttl caps\"")],
    },
    // Unknown fields.
    Mutation {
        table: "providers",
        id: "ex-webapi-034-expires-garbage",
        changes: &[("/expect/nobody_reads_this", "1")],
    },
    Mutation {
        table: "rbac",
        id: "",
        changes: &[("/nobody_reads_this", "1")],
    },
    // Prose has an outcome.
    Mutation {
        table: "rbac_derived",
        id: "drv-rbac-031",
        changes: &[
            ("/policy/user", "\"g, team, role:admin\\n\""),
            ("/subject/value/groups", "[\"team\"]"),
        ],
    },
    Mutation {
        table: "rbac_derived",
        id: "drv-rbac-026",
        changes: &[("/request/resource", "\"logs\"")],
    },
    Mutation {
        table: "impersonation_derived",
        id: "drv-imp-009",
        changes: &[("/given/destination_service_accounts", "[]")],
    },
    Mutation {
        table: "impersonation_derived",
        id: "drv-imp-010",
        changes: &[(
            "/given/destination_service_accounts",
            "[{\"server\": \"https://other/\", \"namespace\": \"*\", \"defaultServiceAccount\": \"sa\"}]",
        )],
    },
    // Without the reason for its refusal, the request succeeds.
    Mutation {
        table: "impersonation",
        id: "imp-op-021",
        changes: &[
            ("/app/destination/server", "\"https://localhost:6443\""),
            ("/app/destination/name", "\"\""),
        ],
    },
    // The results of an operation's requests are compared.
    Mutation {
        table: "impersonation",
        id: "imp-op-003",
        changes: &[("/expected/message_contains", "\"one or more objects failed\"")],
    },
    Mutation {
        table: "impersonation",
        id: "imp-op-009",
        changes: &[("/expected/impersonate", "\"system:serviceaccount:fake-dest-ns:other\"")],
    },
    Mutation {
        table: "impersonation",
        id: "imp-op-025",
        changes: &[("/existing_service_accounts", "[]")],
    },
];

/// Runs every mutation. A case that still passes is a failure.
///
/// # Errors
/// A table cannot be read, or has no such case.
pub(crate) fn run(out: &mut impl Write, folder: &Path, outcomes: &Outcomes) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let write = |error: std::io::Error| error.to_string();
    for Mutation { table, id, changes } in MUTATIONS {
        let table = Table::read(&folder.join(format!("{table}.yaml")), outcomes)?;
        let case = table.cases.iter().find(|case| id.is_empty() || case.id == *id);
        let case = case.ok_or_else(|| format!("mutations: there is no case `{id}`"))?;
        let case = changes.iter().try_fold(case.clone(), |case, (pointer, value)| {
            let value: Value = serde_json::from_str(value).map_err(|error| format!("mutations: {id}: {error}"))?;
            case.mutated(pointer, value)
        })?;
        match run_case(&table, &case) {
            Err(_) => tally.passed += 1,
            Ok(()) => {
                tally.failed += 1;
                writeln!(out, "mutations: FAILED: {} passes with {changes:?}", case.id).map_err(write)?;
            }
        }
    }
    for suite in crate::SUITES {
        suite.end();
    }
    writeln!(out, "mutations: {} passed, {} failed", tally.passed, tally.failed).map_err(write)?;
    Ok(tally)
}
