//! Lists of accounts under both semantics.

use proptest::prelude::*;

use super::{
    AccountSource, DeployTarget, DerivedAccount, DestinationServiceAccounts, Error, Fallback, PatternMatch, validate,
};
use crate::impersonate::Impersonation;
use tollgate_config::ServiceAccountSemantics;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::dns::{is_label, is_subdomain};
use tollgate_objects::{Cluster, DestinationServiceAccount, ParseDestinationServiceAccountError};

mod rules;

const SERVER: &str = "https://k";

fn entries(rows: &[[&str; 3]]) -> Vec<DestinationServiceAccount> {
    let entry = |(at, [server, namespace, account]): (usize, &[&str; 3])| DestinationServiceAccount {
        server: (*server).to_owned(),
        namespace: (*namespace).to_owned(),
        default_service_account: (*account).to_owned(),
        location: Location::new("project.yaml", u32::try_from(at).unwrap() + 1),
    };
    rows.iter().enumerate().map(entry).collect()
}

fn cluster() -> Cluster {
    Cluster {
        name: "prod".to_owned(),
        server: SERVER.to_owned(),
        project: String::new(),
    }
}

/// Derives the account for an Application of `argocd` that deploys to `namespace`.
fn derive(rows: &[[&str; 3]], namespace: &str, semantics: ServiceAccountSemantics) -> Result<DerivedAccount, Error> {
    let cluster = cluster();
    let target = DeployTarget {
        cluster: &cluster,
        namespace,
        application_namespace: "argocd",
        control_plane_namespace: "argocd",
    };
    DestinationServiceAccounts::compile(&entries(rows), semantics).derive_account(&target, Fallback::Deny)
}

fn user(derived: Result<DerivedAccount, Error>) -> Result<String, &'static str> {
    let derived = derived.map_err(|error| error.code())?;
    match &*derived.impersonation {
        Impersonation::As(identity) => {
            assert_eq!(identity.groups, Vec::<String>::new());
            assert_eq!(identity.uid, None);
            assert_eq!(identity.extra, Vec::new());
            assert_eq!(derived.account.unwrap().username(), identity.username);
            Ok(identity.username.clone())
        }
        Impersonation::Nobody => Ok(String::new()),
    }
}

/// Compares the user, or the code of the error, under both semantics.
fn check(rows: &[[&str; 3]], namespace: &str, [argocd, strict]: [Result<&str, &'static str>; 2]) {
    let found = user(derive(rows, namespace, ServiceAccountSemantics::Argocd));
    assert_eq!(found.as_deref(), argocd.as_deref(), "argocd: {rows:?}");
    let found = user(derive(rows, namespace, ServiceAccountSemantics::Strict));
    assert_eq!(found.as_deref(), strict.as_deref(), "strict: {rows:?}");
}

#[test]
fn the_first_entry_that_matches_decides() {
    let rows = [[SERVER, "*", "first"], [SERVER, "ns", "narrower"]];
    check(&rows, "ns", [Ok("system:serviceaccount:ns:first"); 2]);
    let rows = [[SERVER, "other", "first"], ["*", "*", "second"], ["*", "*", "third"]];
    check(&rows, "ns", [Ok("system:serviceaccount:ns:second"); 2]);
    let derived = derive(&rows, "ns", ServiceAccountSemantics::Strict).unwrap();
    let location = Location::new("project.yaml", 2);
    assert_eq!(derived.by, AccountSource::Entry { index: 1, location });
    check(&rows[..1], "ns", [Err("no-service-account"); 2]);
}

#[test]
fn the_error_without_a_match_names_server_and_namespace() {
    let error = derive(&[], "ns", ServiceAccountSemantics::Strict)
        .unwrap_err()
        .to_string();
    let expected = "no matching service account found for destination server https://k and namespace ns";
    assert_eq!(error, expected);
}

#[test]
fn a_missing_destination_namespace_is_matched_as_an_empty_string() {
    let rows = [[SERVER, "", "sa"]];
    check(&rows, "", [Ok("system:serviceaccount:argocd:sa"); 2]);
    check(&rows, "ns", [Err("no-service-account"); 2]);
    check(&[[SERVER, "*", "sa"]], "", [Ok("system:serviceaccount:argocd:sa"); 2]);
    check(&[[SERVER, "argocd", "sa"]], "", [Err("no-service-account"); 2]);
}

#[test]
fn an_account_may_have_its_own_namespace() {
    let rows = [[SERVER, "*", "elsewhere:sa"]];
    check(&rows, "ns", [Ok("system:serviceaccount:elsewhere:sa"); 2]);
    check(&rows, "", [Ok("system:serviceaccount:elsewhere:sa"); 2]);
}

#[test]
fn wildcards_match_slashes_and_braces_are_alternatives() {
    let sa = [Ok("system:serviceaccount:ns:sa"); 2];
    check(&[["https://{k,l}", "n?", "sa"]], "ns", sa);
    check(&[["h*", "[m-o]s", "sa"]], "ns", sa);
    check(&[["https://{l,m}", "n?", "sa"]], "ns", [Err("no-service-account"); 2]);
    check(&[["https://k", "N?", "sa"]], "ns", [Err("no-service-account"); 2]);
}

#[test]
fn an_invalid_pattern_is_an_error_only_before_the_first_match() {
    let good = [SERVER, "*", "sa"];
    let sa = "system:serviceaccount:ns:sa";
    check(&[["[", "*", "a"], good], "ns", [Err("invalid-server-pattern"); 2]);
    check(&[["x", "[", "a"], good], "ns", [Err("invalid-namespace-pattern"); 2]);
    check(&[["[", "[", "a"], good], "ns", [Err("invalid-server-pattern"); 2]);
    check(&[good, ["[", "[", "a"]], "ns", [Ok(sa); 2]);
    let error = derive(
        &[["x", "*", "a"], ["e[[a*", "*", "a"]],
        "ns",
        ServiceAccountSemantics::Argocd,
    );
    let expected = "invalid glob pattern for destination server `e[[a*` at project.yaml:2";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn an_invalid_account_is_refused_only_if_its_entry_matches() {
    let refused = ["", "  ", "a!", "a*", "[a]", "{a}", "a\\b", "a/b", "*", "a\nb"];
    for account in refused {
        check(&[[SERVER, "*", account]], "ns", [Err("invalid-service-account"); 2]);
        check(
            &[[SERVER, "other", account], [SERVER, "*", "sa"]],
            "ns",
            [Ok("system:serviceaccount:ns:sa"); 2],
        );
    }
    let error = derive(&[[SERVER, "*", "bad*sa"]], "ns", ServiceAccountSemantics::Argocd).unwrap_err();
    let expected = "default service account contains invalid chars 'bad*sa' at project.yaml:1";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn public_messages_omit_the_location() {
    let messages = |rows: &[[&str; 3]]| {
        derive(rows, "ns", ServiceAccountSemantics::Strict)
            .unwrap_err()
            .public_message()
    };
    let start = "error deriving service account to impersonate: ";
    for (row, what) in [
        (["[", "*", "a"], "invalid glob pattern for destination server `[`"),
        (["*", "[", "a"], "invalid glob pattern for destination namespace `[`"),
        (["*", "*", "a*"], "default service account contains invalid chars 'a*'"),
    ] {
        assert_eq!(messages(&[row]), format!("{start}{what}"));
    }
    assert!(messages(&[]).starts_with("no matching service account found"));
}

#[test]
fn strict_accepts_only_valid_service_account_names() {
    let odd = [
        (":sa", "system:serviceaccount::sa"),
        ("a:b:c", "system:serviceaccount:a:b:c"),
        (" sa ", "system:serviceaccount:ns: sa "),
        ("ns:", "system:serviceaccount:ns:"),
        ("Sa", "system:serviceaccount:ns:Sa"),
        ("a.b:sa", "system:serviceaccount:a.b:sa"),
        ("sa.", "system:serviceaccount:ns:sa."),
        ("s\u{e4}", "system:serviceaccount:ns:s\u{e4}"),
    ];
    for (account, argocd) in odd {
        let strict = Err("invalid-service-account");
        check(&[[SERVER, "*", account]], "ns", [Ok(argocd), strict]);
    }
    check(
        &[[SERVER, "*", "a.b-c"]],
        "ns",
        [Ok("system:serviceaccount:ns:a.b-c"); 2],
    );
}

#[test]
fn strict_accepts_only_valid_namespaces() {
    let rows = [[SERVER, "*", "sa"]];
    let odd = "kube-system:x";
    let argocd = Ok("system:serviceaccount:kube-system:x:sa");
    check(&rows, odd, [argocd, Err("invalid-namespace")]);
    // An account with its own namespace does not use the destination's.
    check(&[[SERVER, "*", "own:sa"]], odd, [Ok("system:serviceaccount:own:sa"); 2]);
}

#[test]
fn strict_requires_a_namespace_for_accounts_of_reserved_namespaces() {
    for namespace in super::RESERVED_NAMESPACES {
        let user = format!("system:serviceaccount:{namespace}:sa");
        let implied = [SERVER, "*", "sa"];
        check(&[implied], namespace, [Ok(&user), Err("reserved-namespace")]);
        // A namespace pattern that equals the destination does not qualify the account.
        check(
            &[[SERVER, namespace, "sa"]],
            namespace,
            [Ok(&user), Err("reserved-namespace")],
        );
        let qualified = format!("{namespace}:sa");
        check(&[[SERVER, "*", &qualified]], "ns", [Ok(&user); 2]);
    }
}

#[test]
fn strict_ignores_trailing_slashes_and_matches_cluster_names() {
    let (sa, none) = (Ok("system:serviceaccount:ns:sa"), Err("no-service-account"));
    check(&[["https://k/", "*", "sa"]], "ns", [none, sa]);
    check(&[["https://k//", "*", "sa"]], "ns", [none, sa]);
    check(&[["prod", "*", "sa"]], "ns", [none, sa]);
    check(&[["pr*", "*", "sa"]], "ns", [none, sa]);
    check(&[["https://l/", "*", "sa"]], "ns", [none; 2]);
    check(&[["production", "*", "sa"]], "ns", [none; 2]);
    check(&[["/", "*", "sa"]], "ns", [none; 2]);
    check(&[["", "*", "sa"]], "ns", [none; 2]);
}

#[test]
fn an_empty_pattern_does_not_match_a_cluster_without_a_name() {
    let mut cluster = cluster();
    cluster.name = String::new();
    cluster.server = "https://k/".to_owned();
    let target = DeployTarget {
        cluster: &cluster,
        namespace: "ns",
        application_namespace: "argocd",
        control_plane_namespace: "argocd",
    };
    let derived = |server: &str, semantics| {
        user(
            DestinationServiceAccounts::compile(&entries(&[[server, "*", "sa"]]), semantics)
                .derive_account(&target, Fallback::Deny),
        )
    };
    assert_eq!(derived("", ServiceAccountSemantics::Strict), Err("no-service-account"));
    // The trailing slash of the cluster's server is removed under both semantics.
    for semantics in [ServiceAccountSemantics::Strict, ServiceAccountSemantics::Argocd] {
        assert_eq!(
            derived("https://k", semantics),
            Ok("system:serviceaccount:ns:sa".to_owned())
        );
    }
}

#[test]
fn overlapping_wildcards_match_only_under_argocd_semantics() {
    let rows = [["https://*/", "a-*-b", "sa"]];
    let found = derive(&[["*", "a-*-b", "sa"]], "a-b", ServiceAccountSemantics::Argocd);
    assert_eq!(user(found), Ok("system:serviceaccount:a-b:sa".to_owned()));
    let found = derive(&[["*", "a-*-b", "sa"]], "a-b", ServiceAccountSemantics::Strict);
    assert_eq!(user(found), Err("no-service-account"));
    check(
        &rows,
        "a--b",
        [Err("no-service-account"), Ok("system:serviceaccount:a--b:sa")],
    );
}

#[test]
fn fallbacks_are_the_default_account_an_error_or_the_gateway() {
    let cluster = cluster();
    for semantics in [ServiceAccountSemantics::Strict, ServiceAccountSemantics::Argocd] {
        let list = DestinationServiceAccounts::compile(&entries(&[["x", "*", "sa"]]), semantics);
        let with_fallback = |namespace, fallback| {
            let target = DeployTarget {
                cluster: &cluster,
                namespace,
                application_namespace: "argocd",
                control_plane_namespace: "argocd",
            };
            let derived = list.derive_account(&target, fallback);
            if let Ok(derived) = &derived {
                assert_eq!(derived.by, AccountSource::Fallback(fallback));
            }
            user(derived)
        };
        let default = Fallback::DefaultServiceAccount;
        assert_eq!(
            with_fallback("ns", default),
            Ok("system:serviceaccount:ns:default".to_owned())
        );
        for reserved in ["", "argocd", "kube-system"] {
            assert_eq!(
                with_fallback(reserved, default),
                Err("reserved-namespace"),
                "{reserved}"
            );
        }
        assert_eq!(with_fallback("a:b", default), Err("invalid-namespace"));
        assert_eq!(with_fallback("ns", Fallback::Deny), Err("no-service-account"));
        assert_eq!(with_fallback("ns", Fallback::Controller), Ok(String::new()));
    }
}

#[test]
fn strict_requires_a_namespace_for_accounts_of_the_control_plane() {
    for name in [
        "argocd-server",
        "argocd-application-controller",
        "tollgate",
        "tollgate-a",
    ] {
        let here = format!("system:serviceaccount:argocd:{name}");
        for namespace in ["", "argocd"] {
            check(&[["*", "*", name]], namespace, [Ok(&here), Err("reserved-namespace")]);
            let qualified = format!("argocd:{name}");
            check(&[["*", "*", &qualified]], namespace, [Ok(&here), Ok(&here)]);
        }
        let there = format!("system:serviceaccount:team:{name}");
        check(&[["*", "*", name]], "team", [Ok(&there), Ok(&there)]);
    }
    // An Application without a destination namespace may use other accounts of that namespace.
    let deployer = Ok("system:serviceaccount:argocd:guestbook-deployer");
    check(&[["*", "*", "guestbook-deployer"]], "", [deployer, deployer]);
}

#[test]
fn a_fallback_does_not_hide_an_invalid_entry() {
    let cluster = cluster();
    let target = DeployTarget {
        cluster: &cluster,
        namespace: "ns",
        application_namespace: "argocd",
        control_plane_namespace: "argocd",
    };
    for fallback in [Fallback::DefaultServiceAccount, Fallback::Deny, Fallback::Controller] {
        for (row, code) in [
            (["[", "*", "sa"], "invalid-server-pattern"),
            (["*", "*", " "], "invalid-service-account"),
        ] {
            let list = DestinationServiceAccounts::compile(&entries(&[row]), ServiceAccountSemantics::Strict);
            assert_eq!(user(list.derive_account(&target, fallback)), Err(code));
        }
    }
}

#[test]
fn explain_lists_every_evaluated_entry() {
    let cluster = cluster();
    let target = DeployTarget {
        cluster: &cluster,
        namespace: "ns",
        application_namespace: "argocd",
        control_plane_namespace: "argocd",
    };
    let rows = [
        ["x", "ns", "a"],
        [SERVER, "other", "b"],
        ["x", "other", "c"],
        [SERVER, "n*", "d"],
        ["*", "*", "e"],
    ];
    let evaluated =
        DestinationServiceAccounts::compile(&entries(&rows), ServiceAccountSemantics::Strict).explain(&target);
    let messages: Vec<_> = evaluated
        .iter()
        .map(|evaluated| (evaluated.account.as_str(), evaluated.why()))
        .collect();
    let expected = [
        ("a", "the server does not match"),
        ("b", "the namespace does not match"),
        ("c", "neither server nor namespace matches"),
        ("d", "server and namespace match"),
    ];
    assert_eq!(messages, expected);
    assert!(evaluated.last().unwrap().decides());
    let evaluated = DestinationServiceAccounts::compile(
        &entries(&[["x", "[", "a"], ["*", "*", "b"]]),
        ServiceAccountSemantics::Strict,
    )
    .explain(&target);
    assert_eq!(evaluated.len(), 1);
    assert_eq!(
        (evaluated[0].server_matched, evaluated[0].namespace_matched),
        (PatternMatch::No, PatternMatch::Broken)
    );
}

fn messages(findings: Vec<Diagnostic>) -> Vec<String> {
    findings.into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn validation_errors_are_those_of_argocd() {
    let check = |row: [&str; 3], expected: &str| {
        for semantics in [ServiceAccountSemantics::Argocd, ServiceAccountSemantics::Strict] {
            let found = messages(validate(&entries(&[row]), semantics));
            assert_eq!(found, [format!("project.yaml:1: error: {expected}")], "{row:?}");
        }
    };
    check(["!abc", "ns", "sa"], "server has an invalid format, '!abc'");
    check(["a!", "ns", "sa"], "server has an invalid format, 'a!'");
    check(["[", "ns", "sa"], "server has an invalid format, '['");
    check([SERVER, "!*", "sa"], "namespace has an invalid format, '!*'");
    check([SERVER, "[", "sa"], "namespace has an invalid format, '['");
    check(
        [SERVER, "ns", "  "],
        "defaultServiceAccount has an invalid format, '  '",
    );
    check(
        [SERVER, "ns", "a/b"],
        "defaultServiceAccount has an invalid format, 'a/b'",
    );
    for semantics in [ServiceAccountSemantics::Argocd, ServiceAccountSemantics::Strict] {
        let good = [[SERVER, "ns", "sa"], [SERVER, "", "sa"], ["", "*", "ns:sa"]];
        assert_eq!(validate(&entries(&good), semantics), []);
        let twice = messages(validate(
            &entries(&[[SERVER, "ns", "a"], [SERVER, "ns", "b"]]),
            semantics,
        ));
        let expected = "project.yaml:2: error: destinationServiceAccount 'https://k/ns' already added";
        assert_eq!(twice, [expected]);
    }
}

#[test]
fn findings_are_in_the_order_of_argocds_checks() {
    let check = |row: [&str; 3], expected: &[&str]| {
        let found = validate(&entries(&[row]), ServiceAccountSemantics::Argocd);
        let messages: Vec<&str> = found.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, expected);
    };
    let server = |text: &str| format!("server has an invalid format, '{text}'");
    let namespace = |text: &str| format!("namespace has an invalid format, '{text}'");
    let account = "defaultServiceAccount has an invalid format, 'a*'";
    check(["!a", "!b", "a*"], &[&server("!a"), &namespace("!b"), account]);
    check(["[", "!b", "a*"], &[&namespace("!b"), account, &server("[")]);
    check(["[", "[", "a*"], &[account, &server("["), &namespace("[")]);
    check(["[!", "[", "sa"], &[&server("[!"), &namespace("[")]);
}

#[test]
fn strict_validation_refuses_what_strict_matching_refuses() {
    for account in [":sa", "a:b:c", " sa ", "Sa"] {
        let list = entries(&[[SERVER, "ns", account]]);
        assert_eq!(validate(&list, ServiceAccountSemantics::Argocd), []);
        let expected = format!("project.yaml:1: error: defaultServiceAccount has an invalid format, '{account}'");
        assert_eq!(messages(validate(&list, ServiceAccountSemantics::Strict)), [expected]);
    }
    let list = entries(&[[SERVER, "ns", "a"], ["https://k/", "ns", "b"]]);
    assert_eq!(validate(&list, ServiceAccountSemantics::Argocd), []);
    assert_eq!(validate(&list, ServiceAccountSemantics::Strict).len(), 1);
}

#[test]
fn entries_are_parsed_from_three_parts() {
    let read = |text: &str| text.parse::<DestinationServiceAccount>();
    let entry = read("https://k:8443,ns, sa").unwrap();
    assert_eq!(
        (
            entry.server.as_str(),
            entry.namespace.as_str(),
            entry.default_service_account.as_str()
        ),
        ("https://k:8443", "ns", " sa")
    );
    assert!(read(",,").is_ok());
    for (text, observed) in [("", 1), ("a,b", 2), ("a,b,c,d", 4)] {
        let text_ = text.to_owned();
        assert_eq!(
            read(text),
            Err(ParseDestinationServiceAccountError { text: text_, observed })
        );
    }
}

fn lint(rows: &[[&str; 3]]) -> Vec<String> {
    messages(DestinationServiceAccounts::compile(&entries(rows), ServiceAccountSemantics::Strict).findings(rows.len()))
}

#[test]
fn unreachable_entries_are_reported() {
    let unreachable = [
        [[SERVER, "ns", "a"], [SERVER, "ns", "b"]],
        [["*", "*", "a"], [SERVER, "ns", "b"]],
        [[SERVER, "n*", "a"], [SERVER, "ns", "b"]],
        [["https://*", "n*", "a"], ["https://k*", "n*s", "b"]],
        [["*", "*-dev", "a"], [SERVER, "team-*-dev", "b"]],
        [["*", "{a,b,c}", "a"], [SERVER, "{a,c}", "b"]],
        [["*", "?*", "a"], [SERVER, "n*", "b"]],
        [["*", "[a-z]", "a"], [SERVER, "[b-d]", "b"]],
        [["https://k/", "ns", "a"], [SERVER, "ns", "b"]],
    ];
    for rows in unreachable {
        let found = lint(&rows);
        assert_eq!(found.len(), 1, "{rows:?}: {found:?}");
        let expected = "project.yaml:2: warning: `destinationServiceAccounts[1]` is never reached: the entry at \
                        project.yaml:1 matches all that it matches";
        assert!(found[0].starts_with(expected), "{found:?}");
    }
    let reachable = [
        [[SERVER, "ns", "a"], ["*", "*", "b"]],
        [["https://l", "*", "a"], [SERVER, "ns", "b"]],
        [["*", "?*", "a"], [SERVER, "*", "b"]],
        [["*", "n*", "a"], [SERVER, "*s", "b"]],
        [["*", "{a,b}", "a"], [SERVER, "{a,c}", "b"]],
        [["*", "[a-c]", "a"], [SERVER, "[b-d]", "b"]],
        [["*", "[!x]*", "a"], [SERVER, "?*", "b"]],
        [["*", "ab?*bc", "a"], [SERVER, "ab*bc", "b"]],
    ];
    for rows in reachable {
        assert_eq!(lint(&rows), Vec::<String>::new(), "{rows:?}");
    }
}

#[test]
fn harmful_entries_are_reported() {
    let check = |row: [&str; 3], expected: &str| {
        let found = lint(&[row]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    };
    check(
        ["[", "ns", "sa"],
        "`destinationServiceAccounts[0].server` is `[`, which is not a pattern",
    );
    check(
        [SERVER, "[", "sa"],
        "`destinationServiceAccounts[0].namespace` is `[`, which is not a pattern",
    );
    check([SERVER, "ns", ":sa"], "is `:sa`, which names no service account");
    check([SERVER, "ns", "kube-system:sa"], "an account of Kubernetes' own");
    check([SERVER, "!ns", "sa"], "`!` negates nothing here");
    assert_eq!(lint(&[[SERVER, "ns", "sa"]]), Vec::<String>::new());
}

proptest! {
    /// For any patterns, the first entry whose patterns match decides, and no account of a later
    /// one acts.
    #[test]
    fn the_first_matching_entry_decides_for_any_patterns(
        rows in proptest::collection::vec(
            (proptest::sample::select(vec!["*", SERVER, "https://*", "x", "https://{k,l}", "["]),
             proptest::sample::select(vec!["*", "ns", "n*", "", "other", "n?", "["])),
            0..12,
        ),
        namespace in proptest::sample::select(vec!["ns", "", "other", "nn"]),
    ) {
        let accounts: Vec<String> = (0..rows.len()).map(|at| format!("sa-{at}")).collect();
        let list: Vec<[&str; 3]> = rows
            .iter()
            .zip(&accounts)
            .map(|((server, namespace), account)| [*server, *namespace, account.as_str()])
            .collect();
        let first = list.iter().position(|[server, wanted, _]| {
            let matches = |pattern: &str, text: &str| {
                tollgate_core::glob::Pattern::compile(pattern, &[]).map(|pattern| pattern.matches(text))
            };
            match (matches(server, SERVER), matches(wanted, namespace)) {
                (Ok(server), Ok(namespace)) => server && namespace,
                _ => true,
            }
        });
        for semantics in [ServiceAccountSemantics::Argocd, ServiceAccountSemantics::Strict] {
            let found = user(derive(&list, namespace, semantics));
            let own = if namespace.is_empty() { "argocd" } else { namespace };
            let expected = match first {
                None => Err("no-service-account"),
                Some(at) if list[at][0] == "[" => Err("invalid-server-pattern"),
                Some(at) if list[at][1] == "[" => Err("invalid-namespace-pattern"),
                Some(at) => Ok(format!("system:serviceaccount:{own}:sa-{at}")),
            };
            prop_assert_eq!(found, expected);
            // Entries after the one that decides change nothing.
            if let Some(at) = first {
                prop_assert_eq!(user(derive(&list[..=at], namespace, semantics)), user(derive(&list, namespace, semantics)));
            }
        }
    }

    /// If `includes` returns true, the wide pattern matches every text that the narrow one matches.
    #[test]
    fn inclusion_is_sound(wide in "[ab*?]{0,5}", narrow in "[ab*?]{0,5}", text in "[abc]{0,6}") {
        let compile = |text: &str| tollgate_core::glob::Pattern::compile_exact(text, &[]).unwrap();
        let (wide, narrow) = (compile(&wide), compile(&narrow));
        if wide.includes(&narrow) && narrow.matches(&text) {
            prop_assert!(wide.matches(&text));
        }
    }

    /// Kubernetes can split every name that strict semantics give into namespace and name.
    #[test]
    fn strict_usernames_split_into_namespace_and_name(account in "[a-z:. */A-Z-]{0,12}", namespace in "[a-z:.-]{0,8}") {
        let rows = [[SERVER, "*", account.as_str()]];
        if let Ok(user) = user(derive(&rows, &namespace, ServiceAccountSemantics::Strict)) {
            let parts: Vec<&str> = user.split(':').collect();
            prop_assert_eq!(parts.len(), 4);
            prop_assert!(is_label(parts[2]) && is_subdomain(parts[3]), "{}", user);
        }
    }
}
