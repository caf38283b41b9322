//! The index against a plain scan over all rows, on random policies.

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const NAMES: &[&str] = &["u", "v", "g1", "g2", "role:a", "role:b", "role:c", ""];
const RESOURCES: &[&str] = &["applications", "logs", "*", "app*", "{logs,exec}", "*s"];
const ACTIONS: &[&str] = &["get", "*", "sync", "{get,sync}", "g*", "action/*", "*/x"];
const OBJECTS: &[&str] = &[
    "*", "p/*", "p/a", "*/a", "p/*a", "q/*", "p/a*b", "*a*", "{p,q}/a", "p/[!a]", "*/*", "p/*/a", "**", "q/?",
];
const REQUEST_RESOURCES: &[&str] = &["applications", "logs", "exec", "clusters"];
const REQUEST_ACTIONS: &[&str] = &["get", "sync", "action/x", ""];
const REQUEST_OBJECTS: &[&str] = &["p/a", "p/b", "q/a", "p/x/a", "p/axb", "", "a", "q/ä", "p/"];

/// Rows and grants, evaluated one by one.
struct Model {
    rows: Vec<[String; 5]>,
    grants: Vec<[String; 2]>,
}

impl Model {
    fn new(random: &mut Random) -> Self {
        let row = |random: &mut Random| {
            let effect = if random.below(4) == 0 { "deny" } else { "allow" };
            let fields = [
                random.pick(NAMES),
                random.pick(RESOURCES),
                random.pick(ACTIONS),
                random.pick(OBJECTS),
                effect,
            ];
            fields.map(str::to_owned)
        };
        let rows = (0..random.below(25)).map(|_| row(random)).collect();
        let grants = (0..random.below(6))
            .map(|_| [random.pick(NAMES), random.pick(NAMES)].map(str::to_owned))
            .collect();
        Self { rows, grants }
    }

    fn text(&self) -> String {
        let rows = self.rows.iter().map(|fields| {
            format!(
                "p, {}\n",
                fields
                    .join(", ")
                    .replace("{logs,exec}", "\"{logs,exec}\"")
                    .replace("{get,sync}", "\"{get,sync}\"")
                    .replace("{p,q}/a", "\"{p,q}/a\"")
            )
        });
        let grants = self.grants.iter().map(|fields| format!("g, {}\n", fields.join(", ")));
        rows.chain(grants).collect()
    }

    fn inherits(&self, from: &str, to: &str, hops: usize) -> bool {
        from == to
            || (hops > 0
                && self
                    .grants
                    .iter()
                    .any(|[member, role]| member == from && self.inherits(role, to, hops - 1)))
    }

    /// Whether the rows of `subject` allow, and whether they deny.
    fn effects_for(&self, subject: &str, request: RbacRequest<'_>) -> (bool, bool) {
        let texts = [request.resource, request.action, request.object];
        let (mut allow, mut deny) = (false, false);
        for [who, resource, action, object, effect] in &self.rows {
            let fields = [resource, action, object];
            let all = fields
                .iter()
                .zip(texts)
                .all(|(pattern, text)| Pattern::compile(pattern, &[]).unwrap().matches(text));
            if all && self.inherits(subject, who, 4) {
                *if effect == "allow" { &mut allow } else { &mut deny } = true;
            }
        }
        (allow, deny)
    }

    fn argocd(&self, user: &str, groups: &[&str], default: &str, request: RbacRequest<'_>) -> bool {
        let granted = |group: &&&str| self.grants.iter().any(|[member, _]| member == **group);
        let default = (!default.is_empty()).then_some(default);
        let mut principals = default
            .into_iter()
            .chain([user])
            .chain(groups.iter().filter(granted).copied())
            .chain([""]);
        principals.any(|name| self.effects_for(name, request) == (true, false))
    }

    fn strict(&self, user: &str, groups: &[&str], default: &str, request: RbacRequest<'_>) -> bool {
        let default = (!default.is_empty()).then_some(default);
        let counts = |name: &&str| !name.starts_with("role:");
        let named = [user].into_iter().chain(groups.iter().copied()).filter(counts);
        let found: Vec<_> = default
            .into_iter()
            .chain(named)
            .chain([""])
            .map(|name| self.effects_for(name, request))
            .collect();
        found.iter().any(|(allow, _)| *allow) && !found.iter().any(|(_, deny)| *deny)
    }
}

#[test]
fn index_and_scan_agree_on_random_policies() {
    let mut random = Random(42);
    let mut allowed = 0;
    for round in 0..400 {
        let model = Model::new(&mut random);
        // The model follows four hops, and a longer path needs five grants in a row.
        if model.grants.len() > 4 {
            continue;
        }
        let default = if random.below(3) == 0 { "role:a" } else { "" };
        let make = |semantics| {
            load(&PolicySource {
                default_role: default.to_owned(),
                ..source(&model.text(), semantics)
            })
        };
        let (argocd, strict) = (make(RbacSemantics::Argocd), make(RbacSemantics::Strict));
        for _ in 0..60 {
            let (user, groups) = (random.pick(NAMES), [random.pick(NAMES), random.pick(NAMES)]);
            let request = RbacRequest {
                resource: random.pick(REQUEST_RESOURCES),
                action: random.pick(REQUEST_ACTIONS),
                object: random.pick(REQUEST_OBJECTS),
            };
            let caller = claims(json!({"sub": user, "groups": groups}));
            let round_description = format!(
                "round {round}, `{user}` {groups:?} {request:?} default `{default}`\n{}",
                model.text()
            );
            let verdict = argocd.decide(&argocd.identify(&caller), request);
            assert_eq!(
                verdict.is_allowed(),
                model.argocd(user, &groups, default, request),
                "{round_description}"
            );
            allowed += usize::from(verdict.is_allowed());
            // The globs of the two semantics differ only in the overlap of `p/*/a`.
            if !model.text().contains("p/*/a") {
                let verdict = strict.decide(&strict.identify(&caller), request);
                assert_eq!(
                    verdict.is_allowed(),
                    model.strict(user, &groups, default, request),
                    "{round_description}"
                );
            }
            let who = argocd.identify(&caller);
            let batch = argocd.decide_each(&who, request.resource, request.action, REQUEST_OBJECTS.iter().copied());
            for (object, verdict) in REQUEST_OBJECTS.iter().zip(batch) {
                assert_eq!(
                    verdict,
                    argocd.decide(&who, RbacRequest { object, ..request }),
                    "{round_description}"
                );
            }
        }
    }
    assert!(allowed > 500, "too few requests were allowed: {allowed}");
}
