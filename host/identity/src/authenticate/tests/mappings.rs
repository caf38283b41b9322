//! Tests of mapping claims to names by `AuthenticationConfiguration`.

use serde_json::{Value, json};

use super::issuers::settings;
use super::with;
use crate::authenticate::error::{IdentityField, MalformedCredential};
use crate::authenticate::issuer::ValidationProfile;
use crate::authenticate::mapping::CompiledClaimMappings;
use crate::authenticate::{Error, InvalidTokenReason};
use tollgate_config::{ClaimMapping, ClaimRule, Issuer};
use tollgate_core::diagnostic::Diagnostic;

fn issuer(change: impl FnOnce(&mut Issuer)) -> Issuer {
    let mut issuer = settings("https://login.example").issuers.remove(0);
    change(&mut issuer);
    issuer
}

fn expression(source: &str) -> ClaimMapping {
    ClaimMapping::Expression(source.to_owned())
}

fn claim(claim: &str, prefix: &str) -> ClaimMapping {
    ClaimMapping::Claim {
        claim: claim.to_owned(),
        prefix: prefix.to_owned(),
    }
}

fn claims() -> Value {
    json!({ "sub": "u-1", "email": "ann@corp.example", "email_verified": true, "groups": ["dev"], "hd": "corp" })
}

fn apply(issuer: &Issuer, claims: &Value) -> Result<tollgate_core::user::Identity, Error> {
    let mut findings = Vec::new();
    let mapping = CompiledClaimMappings::compile(issuer, ValidationProfile::OpenIdConnect, "jwt[0]", &mut findings)
        .unwrap_or_else(|| panic!("{findings:?}"));
    mapping.apply(claims.as_object().unwrap())
}

fn mistakes(issuer: &Issuer) -> Vec<String> {
    let mut findings = Vec::new();
    assert!(
        CompiledClaimMappings::compile(issuer, ValidationProfile::OpenIdConnect, "jwt[0]", &mut findings).is_none()
    );
    findings.iter().map(Diagnostic::to_string).collect()
}

fn invalid<T>(reason: InvalidTokenReason) -> Result<T, Error> {
    Err(Error::Invalid(reason))
}

#[test]
fn usernames() {
    let mapping = InvalidTokenReason::Mapping(IdentityField::Username);
    let name = InvalidTokenReason::Name(IdentityField::Username);
    let reserved = InvalidTokenReason::ReservedName(IdentityField::Username);
    let missing = |claim: &str| InvalidTokenReason::MissingClaim(claim.to_owned());
    type Case<'a> = (ClaimMapping, Vec<(&'a str, Value)>, Result<&'a str, InvalidTokenReason>);
    let cases: Vec<Case<'_>> = vec![
        (claim("sub", ""), vec![], Ok("u-1")),
        (
            claim("sub", "https://login.example#"),
            vec![],
            Ok("https://login.example#u-1"),
        ),
        (claim("sub", ""), vec![("sub", json!(""))], Err(missing("sub"))),
        (claim("sub", ""), vec![("sub", json!(7))], Err(missing("sub"))),
        (claim("nick", "x:"), vec![], Err(missing("nick"))),
        (claim("email", ""), vec![], Ok("ann@corp.example")),
        (
            claim("email", ""),
            vec![("email_verified", json!(false))],
            Err(InvalidTokenReason::EmailNotVerified),
        ),
        (
            claim("email", ""),
            vec![("email_verified", json!("true"))],
            Err(InvalidTokenReason::EmailNotVerified),
        ),
        (claim("sub", ""), vec![("email_verified", json!(false))], Ok("u-1")),
        (claim("sub", ""), vec![("sub", json!("a\nb"))], Err(name.clone())),
        (claim("sub", ""), vec![("sub", json!("admin "))], Err(name.clone())),
        (claim("sub", ""), vec![("sub", json!("\u{a0}admin"))], Err(name)),
        (
            claim("sub", ""),
            vec![("sub", json!("system:admin"))],
            Err(reserved.clone()),
        ),
        (claim("sub", "system:"), vec![], Err(reserved.clone())),
        (
            claim("sub", ""),
            vec![("sub", json!("role:admin"))],
            Err(reserved.clone()),
        ),
        (
            claim("sub", ""),
            vec![("sub", json!("proj:web:ci"))],
            Err(reserved.clone()),
        ),
        (claim("sub", "proj:web:"), vec![], Err(reserved.clone())),
        (
            claim("sub", "x:"),
            vec![("sub", json!("system:admin"))],
            Ok("x:system:admin"),
        ),
        (expression("claims.sub + '@' + claims.hd"), vec![], Ok("u-1@corp")),
        (expression("''"), vec![], Err(mapping.clone())),
        (expression("7"), vec![], Err(mapping.clone())),
        (expression("claims.nick"), vec![], Err(mapping.clone())),
        (expression("claims.groups"), vec![], Err(mapping)),
        (
            expression("claims.sub"),
            vec![("sub", json!("system:admin"))],
            Err(reserved.clone()),
        ),
        (expression("'system:' + claims.sub"), vec![], Err(reserved.clone())),
        // A literal in the expression does not allow a reserved name.
        (
            expression("claims.hd == 'corp' ? 'system:admin' : claims.sub"),
            vec![],
            Err(reserved.clone()),
        ),
        (
            expression(r#"claims.hd == "boss" ? "system:admin" : claims.sub"#),
            vec![("sub", json!("system:admin"))],
            Err(reserved.clone()),
        ),
        (
            expression("claims.sub == 'role:admin' ? 'x' : claims.nick"),
            vec![("nick", json!("role:admin"))],
            Err(reserved),
        ),
    ];
    for (username, changes, expected) in cases {
        let outcome = apply(
            &issuer(|issuer| issuer.username = username.clone()),
            &with(claims(), &changes),
        );
        let outcome = outcome.map(|mapped| mapped.username);
        assert_eq!(
            outcome,
            expected.map(str::to_owned).map_err(Error::Invalid),
            "{username:?} {changes:?}"
        );
    }
}

#[test]
fn groups() {
    let wrong = || Err(Error::Malformed(MalformedCredential::Claim("groups")));
    type Case<'a> = (ClaimMapping, Value, Result<Vec<&'a str>, Error>);
    let cases: Vec<Case<'_>> = vec![
        (claim("groups", ""), json!(["a", "b"]), Ok(vec!["a", "b"])),
        (claim("groups", "p:"), json!("a"), Ok(vec!["p:a"])),
        (claim("groups", "p:"), json!(["a", ""]), Ok(vec!["p:a"])),
        (claim("groups", ""), json!([]), Ok(vec![])),
        (claim("groups", ""), json!(null), Ok(vec![])),
        (claim("absent", ""), json!(["a"]), Ok(vec![])),
        (claim("groups", ""), json!(["a", 1]), wrong()),
        (claim("groups", ""), json!({ "a": 1 }), wrong()),
        (
            claim("groups", ""),
            json!(["a", "system:masters"]),
            invalid(InvalidTokenReason::ReservedName(IdentityField::Groups)),
        ),
        (
            claim("groups", ""),
            json!(["a\r\nX: y"]),
            invalid(InvalidTokenReason::Name(IdentityField::Groups)),
        ),
        (
            expression("claims.groups.map(g, 'p:' + g)"),
            json!(["a", "b"]),
            Ok(vec!["p:a", "p:b"]),
        ),
        (expression("claims.groups[0]"), json!(["a", "b"]), Ok(vec!["a"])),
        (expression("['']"), json!([]), Ok(vec![])),
        (
            expression("[1]"),
            json!([]),
            invalid(InvalidTokenReason::Mapping(IdentityField::Groups)),
        ),
        (
            expression("claims.groups"),
            json!(["system:masters"]),
            invalid(InvalidTokenReason::ReservedName(IdentityField::Groups)),
        ),
        (
            expression("claims.groups.exists(g, g == 'root') ? ['system:masters'] : []"),
            json!(["root"]),
            invalid(InvalidTokenReason::ReservedName(IdentityField::Groups)),
        ),
        (
            expression("claims.groups.filter(g, g != 'system:masters' || claims.hd == 'corp')"),
            json!(["system:masters"]),
            invalid(InvalidTokenReason::ReservedName(IdentityField::Groups)),
        ),
    ];
    for (groups, value, expected) in cases {
        let issuer = issuer(|issuer| issuer.groups = Some(groups.clone()));
        let outcome = apply(&issuer, &with(claims(), &[("groups", value.clone())])).map(|mapped| mapped.groups);
        let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(outcome, expected, "{groups:?} {value}");
    }
    assert_eq!(
        apply(&issuer(|issuer| issuer.groups = None), &claims()).unwrap().groups,
        Vec::<String>::new()
    );
}

#[test]
fn the_settings_list_which_reserved_names_may_come_out() {
    let allowing = |names: &[&str]| {
        issuer(|issuer| {
            issuer.username = expression("claims.hd == 'corp' ? 'system:admin' : claims.sub");
            issuer.groups = Some(claim("groups", ""));
            issuer.allowed_reserved_names = names.iter().map(|name| (*name).to_owned()).collect();
        })
    };
    let both = allowing(&["system:admin", "system:masters"]);
    let masters = with(claims(), &[("groups", json!(["system:masters"]))]);
    let mapped = apply(&both, &masters).unwrap();
    assert_eq!(
        (mapped.username.as_str(), mapped.groups),
        ("system:admin", vec!["system:masters".to_owned()])
    );
    for (allowed, claims, field) in [
        (&["system:masters"][..], masters.clone(), IdentityField::Username),
        (&["system:admin"], masters.clone(), IdentityField::Groups),
        (&["system:admin "], masters, IdentityField::Username),
        (
            &["system:admin"],
            with(claims(), &[("hd", json!("x")), ("sub", json!("system:admin2"))]),
            IdentityField::Username,
        ),
        (
            &["role:"],
            with(claims(), &[("hd", json!("x")), ("sub", json!("role:a"))]),
            IdentityField::Username,
        ),
    ] {
        let refused = apply(&allowing(allowed), &claims);
        assert_eq!(refused, invalid(InvalidTokenReason::ReservedName(field)), "{allowed:?}");
    }
}

#[test]
fn uid_and_extra() {
    let issuer = issuer(|issuer| {
        issuer.uid = Some(expression("claims.sub"));
        issuer.extra = vec![
            ("example.org/tenant".to_owned(), "claims.hd".to_owned()),
            ("example.org/none".to_owned(), "''".to_owned()),
            ("example.org/list".to_owned(), "['a', '', 'b']".to_owned()),
        ];
    });
    let mapped = apply(&issuer, &claims()).unwrap();
    assert_eq!(mapped.uid.as_deref(), Some("u-1"));
    let expected = [
        ("example.org/tenant".to_owned(), vec!["corp".to_owned()]),
        ("example.org/list".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
    ];
    assert_eq!(mapped.extra, expected);
    let refused = apply(&issuer, &super::without(claims(), "hd"));
    assert_eq!(refused, invalid(InvalidTokenReason::Mapping(IdentityField::Extra)));
    let refused = apply(&issuer, &with(claims(), &[("sub", json!(""))]));
    assert_eq!(refused, invalid(InvalidTokenReason::MissingClaim("sub".to_owned())));
}

#[test]
fn claim_rules() {
    let required = ClaimRule::Required {
        claim: "hd".to_owned(),
        value: "corp".to_owned(),
    };
    let rule = |source: &str, message: &str| ClaimRule::Expression {
        expression: source.to_owned(),
        message: message.to_owned(),
    };
    let refused = |message: &str| Some(Error::Invalid(InvalidTokenReason::ClaimRule(message.to_owned())));
    let cases = [
        (required.clone(), claims(), None),
        (
            required.clone(),
            with(claims(), &[("hd", json!("other"))]),
            refused("`hd` must be `corp`"),
        ),
        (
            required.clone(),
            with(claims(), &[("hd", json!(["corp"]))]),
            refused("`hd` must be `corp`"),
        ),
        (required, super::without(claims(), "hd"), refused("`hd` must be `corp`")),
        (rule("claims.email_verified == true", "verify"), claims(), None),
        (
            rule("claims.email_verified == true", "verify your e-mail"),
            with(claims(), &[("email_verified", json!(false))]),
            refused("verify your e-mail"),
        ),
        (rule("claims.absent == 1", "absent"), claims(), refused("absent")),
        (rule("claims.sub", "not a boolean"), claims(), refused("not a boolean")),
        (
            rule("claims.hd == 'x'", ""),
            claims(),
            refused("`claims.hd == 'x'` is not true"),
        ),
    ];
    for (rule, claims, expected) in cases {
        let outcome = apply(&issuer(|issuer| issuer.claim_validation = vec![rule.clone()]), &claims);
        assert_eq!(outcome.err(), expected, "{rule:?}");
    }
}

#[test]
fn user_rules() {
    let refused = |message: &str| Some(Error::Invalid(InvalidTokenReason::UserRule(message.to_owned())));
    let cases = [
        ("!user.username.startsWith('root')", "no root", None),
        ("user.groups.exists(g, g == 'corp:dev')", "developers only", None),
        (
            "user.groups.exists(g, g == 'corp:ops')",
            "operators only",
            refused("operators only"),
        ),
        ("user.username == 'u-1'", "unprefixed", refused("unprefixed")),
        ("user.uid == ''", "no uid", None),
        ("user.username", "not a boolean", refused("not a boolean")),
    ];
    for (source, message, expected) in cases {
        let issuer = issuer(|issuer| issuer.user_validation = vec![(source.to_owned(), message.to_owned())]);
        assert_eq!(apply(&issuer, &claims()).err(), expected, "{source}");
    }
}

#[test]
fn bad_expressions_are_all_reported_with_their_key() {
    let issuer = issuer(|issuer| {
        issuer.username = expression("claims.sub +");
        issuer.groups = Some(expression("user.groups"));
        issuer.extra = vec![("example.org/x".to_owned(), "nonsense".to_owned())];
        issuer.user_validation = vec![("claims.sub == 'x'".to_owned(), String::new())];
    });
    let keys: Vec<String> = mistakes(&issuer)
        .iter()
        .map(|mistake| mistake.split('`').nth(1).unwrap().to_owned())
        .collect();
    let expected = [
        "jwt[0].claimMappings.username",
        "jwt[0].claimMappings.groups",
        "jwt[0].claimMappings.extra[example.org/x]",
        "jwt[0].userValidationRules[0]",
    ];
    assert_eq!(keys, expected);
}

#[test]
fn a_username_from_the_e_mail_requires_a_check_of_its_verification() {
    let from_email = |change: &dyn Fn(&mut Issuer)| {
        issuer(|issuer| {
            issuer.username = expression("claims.email");
            change(issuer);
        })
    };
    let expected = "error: `jwt[0].claimMappings.username` uses `claims.email` and nothing looks at \
        `claims.email_verified` (add a claim validation rule such as `claims.email_verified == true`)";
    assert_eq!(mistakes(&from_email(&|_| ())), [expected]);
    let with_check: [&dyn Fn(&mut Issuer); 3] = [
        &|issuer| issuer.username = expression("claims.email_verified ? claims.email : claims.sub"),
        &|issuer| {
            issuer.claim_validation = vec![ClaimRule::Expression {
                expression: "claims.email_verified == true".to_owned(),
                message: String::new(),
            }];
        },
        &|issuer| issuer.extra = vec![("a.example/v".to_owned(), "string(claims.email_verified)".to_owned())],
    ];
    for change in with_check {
        assert_eq!(
            apply(&from_email(change), &claims()).unwrap().username,
            "ann@corp.example"
        );
    }
}
