//! Checks the call graph of a bundle, without evaluating it. Findings are cycles, chains that are
//! too long, calls of functions that are not allowed, and `with`.
//!
//! In both engines a function that calls itself overflows the stack of the process. The check for
//! cycles therefore covers all rules and functions of all packages. A reference that cannot be
//! resolved exactly counts for every rule that it could mean.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{Expr, ExprRef, Literal, Module, Query, Rule, RuleAssign, RuleHead, Span};

use serde_json::Value;

use super::{InputDependencies, builtins, schema};
use tollgate_core::diagnostic::{Diagnostic, Location};

/// Maximum depth of calls among rules and functions.
pub const MAX_CALL_DEPTH: usize = 32;

/// The names on the path from `data` to a rule.
pub(super) type Path = Vec<String>;

/// Checks all modules together. `entry` is the path of the rule that decides. Returns the parts of
/// `input` that they name, or findings.
pub(super) fn check(modules: &[Module], entry: &[&str], schema: &Value) -> Result<InputDependencies, Vec<Diagnostic>> {
    let mut graph = Graph::default();
    for module in modules {
        graph.declare(module);
    }
    let entry: Path = entry.iter().map(|&part| part.to_owned()).collect();
    if !graph.rules.contains_key(&entry) {
        let file = modules
            .first()
            .map_or("policy.rego", |module| module.package.span.source.get_path().as_str());
        let message = format!("there is no rule `data.{}`", entry.join("."));
        return Err(vec![
            Diagnostic::error(Location::new(file, 0), message)
                .with_hint("the package must be that of the front, the rule `decision`"),
        ]);
    }
    for module in modules {
        graph.collect(module);
    }
    let cycles = graph.cycles();
    graph.found.extend(cycles);
    let input_paths = std::mem::take(&mut graph.input_paths);
    graph.found.extend(
        input_paths
            .iter()
            .filter_map(|(path, location)| schema::unknown_field(schema, path, location)),
    );
    if graph.found.is_empty() {
        Ok(graph.dependencies)
    } else {
        Err(graph.found)
    }
}

#[derive(Default)]
struct Graph {
    /// Index of each rule in `nodes`, by full path below `data`.
    rules: BTreeMap<Path, usize>,
    nodes: Vec<Node>,
    dependencies: InputDependencies,
    /// Paths below `input` that rules name, each with the first location.
    input_paths: BTreeMap<Path, Location>,
    found: Vec<Diagnostic>,
}

struct Node {
    name: String,
    location: Location,
    edges: BTreeSet<usize>,
}

pub(super) fn location(span: &Span) -> Location {
    Location {
        file: span.source.get_path().as_str().into(),
        line: span.line,
        column: span.col,
    }
}

/// Where a reference starts. (The span of `a.b` is that of its last dot.)
fn start_of(expr: &Expr) -> Location {
    location(base(expr).span())
}

pub(super) fn head_of(rule: &Rule) -> &ExprRef {
    match rule {
        Rule::Spec {
            head: RuleHead::Compr { refr, .. } | RuleHead::Set { refr, .. } | RuleHead::Func { refr, .. },
            ..
        }
        | Rule::Default { refr, .. } => refr,
    }
}

/// The fixed start of a reference, and the expressions that index it.
pub(super) fn split_reference(expr: &Expr) -> Option<(Path, Vec<&ExprRef>)> {
    let mut parts: Vec<Option<String>> = Vec::new();
    let mut indices = Vec::new();
    let mut expr = expr;
    loop {
        match expr {
            Expr::Var { span, .. } => {
                parts.push(Some(span.text().to_owned()));
                break;
            }
            Expr::RefDot {
                refr, field: (span, _), ..
            } => {
                parts.push(Some(span.text().to_owned()));
                expr = refr;
            }
            Expr::RefBrack { refr, index, .. } => {
                parts.push(builtins::text(index).map(|text| text.to_string()));
                indices.push(index);
                expr = refr;
            }
            _ => return None,
        }
    }
    let path = parts.into_iter().rev().map_while(|part| part).collect();
    Some((path, indices))
}

/// The path below `data` that a name refers to in a module, if it is not a variable. `import`
/// returns the full path that a name is imported for.
pub(super) fn resolve<'a>(
    package: &[String],
    import: impl Fn(&str) -> Option<&'a Path>,
    path: &[String],
) -> Option<Path> {
    let (first, rest) = path.split_first()?;
    if first == "data" {
        return Some(rest.to_vec());
    }
    if let Some(import) = import(first) {
        return Some(import.iter().skip(1).chain(rest).cloned().collect());
    }
    (first != "input").then(|| package.iter().chain(path).cloned().collect())
}

/// The last name of a reference.
pub(super) fn last_name(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Var { span, .. } | Expr::RefDot { field: (span, _), .. } => Some(span.text()),
        _ => None,
    }
}

/// Number of arguments of a function.
pub(super) fn arity(rule: &Rule) -> Option<usize> {
    match rule {
        Rule::Spec {
            head: RuleHead::Func { args, .. },
            ..
        } => Some(args.len()),
        Rule::Spec { .. } | Rule::Default { .. } => None,
    }
}

/// The expression that a reference indexes, if it is not a name: `f(x).y`, `[1, 2][i]`.
pub(super) fn base(expr: &Expr) -> &Expr {
    let mut expr = expr;
    while let Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } = expr {
        expr = refr;
    }
    expr
}

pub(super) fn package(module: &Module) -> Path {
    split_reference(&module.package.refr)
        .map(|(path, _)| path)
        .unwrap_or_default()
}

impl Graph {
    fn declare(&mut self, module: &Module) {
        let package = package(module);
        for rule in &module.policy {
            let path = rule_path(&package, rule);
            let next = self.nodes.len();
            let span = rule.span();
            if *self.rules.entry(path.clone()).or_insert(next) == next {
                self.nodes.push(Node {
                    name: path.join("."),
                    location: location(span),
                    edges: BTreeSet::new(),
                });
            }
            let name = split_reference(head_of(rule))
                .map(|(path, _)| path.join("."))
                .unwrap_or_default();
            if builtins::exists(&name) {
                let message = format!("rule `{name}` hides a built-in function");
                self.found
                    .push(Diagnostic::error(location(span), message).with_hint("give it another name"));
            }
        }
    }

    fn collect(&mut self, module: &Module) {
        let package = package(module);
        let mut imports = BTreeMap::new();
        for import in &module.imports {
            let Some((path, _)) = split_reference(&import.refr) else {
                continue;
            };
            let alias = import
                .r#as
                .as_ref()
                .map(|span| span.text().to_owned())
                .or_else(|| path.last().cloned());
            match (alias, path.first().map(String::as_str)) {
                (Some(alias), Some("data")) => {
                    imports.insert(alias, path);
                }
                // Uses of the alias are not analyzed, so the whole path counts as read.
                (_, Some("input")) => self.record_input_path(path.get(1..).unwrap_or_default(), location(&import.span)),
                _ => {}
            }
        }
        for rule in &module.policy {
            let Some(&node) = self.rules.get(&rule_path(&package, rule)) else {
                continue;
            };
            let mut visitor = RuleVisitor {
                graph: self,
                package: &package,
                imports: &imports,
                node,
            };
            visitor.rule(rule);
        }
    }

    /// Records that a rule names `path` below `input`.
    fn record_input_path(&mut self, path: &[String], location: Location) {
        self.dependencies.record(path);
        self.input_paths.entry(path.to_vec()).or_insert(location);
    }

    /// Every rule that `path`, below `data`, could refer to: those below it and those above it.
    fn possible_rules(&self, path: &[String]) -> Vec<usize> {
        let below = self
            .rules
            .range(path.to_vec()..)
            .take_while(|(below_path, _)| below_path.starts_with(path));
        let above = (1..path.len()).filter_map(|length| self.rules.get_key_value(path.get(..length)?));
        below.chain(above).map(|(_, &node)| node).collect()
    }

    /// Findings about cycles and chains that are too long, each once.
    fn cycles(&self) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        let mut depths = vec![State::New; self.nodes.len()];
        for start in 0..self.nodes.len() {
            self.visit(start, &mut Vec::new(), &mut depths, &mut found);
        }
        found
    }

    fn visit(&self, at: usize, trail: &mut Vec<usize>, states: &mut [State], found: &mut Vec<Diagnostic>) -> usize {
        let (Some(node), Some(state)) = (self.nodes.get(at), states.get(at).copied()) else {
            return 0;
        };
        match state {
            State::Done(depth) => return depth,
            State::Open => {
                let from = trail.iter().position(|&earlier| earlier == at).unwrap_or(0);
                let names = trail
                    .iter()
                    .skip(from)
                    .chain([&at])
                    .filter_map(|&each| self.nodes.get(each));
                let names: Vec<String> = names.map(|each| format!("`{}`", each.name)).take(12).collect();
                let message = format!("rules call one another in a circle: {}", names.join(" → "));
                found.push(Diagnostic::error(node.location.clone(), message).with_hint(
                    "recursion is not possible in Rego; a variable with the name of a rule counts as that rule",
                ));
                return 0;
            }
            State::New => {}
        }
        if let Some(state) = states.get_mut(at) {
            *state = State::Open;
        }
        trail.push(at);
        let mut deepest = 0;
        for &edge in &node.edges {
            deepest = deepest.max(self.visit(edge, trail, states, found));
        }
        trail.pop();
        let depth = deepest + 1;
        if depth == MAX_CALL_DEPTH + 1 {
            let message = format!(
                "`{}` starts a chain of more than {MAX_CALL_DEPTH} rules that wait for one another",
                node.name
            );
            found.push(Diagnostic::error(node.location.clone(), message).with_hint("join some of them"));
        }
        if let Some(state) = states.get_mut(at) {
            *state = State::Done(depth);
        }
        depth
    }
}

pub(super) fn rule_path(package: &[String], rule: &Rule) -> Path {
    let head = split_reference(head_of(rule)).map(|(path, _)| path).unwrap_or_default();
    package.iter().cloned().chain(head).collect()
}

#[derive(Clone, Copy)]
enum State {
    New,
    Open,
    Done(usize),
}

struct RuleVisitor<'a> {
    graph: &'a mut Graph,
    package: &'a [String],
    imports: &'a BTreeMap<String, Path>,
    node: usize,
}

impl RuleVisitor<'_> {
    fn rule(&mut self, rule: &Rule) {
        match rule {
            Rule::Default { args, value, .. } => {
                self.each(args);
                self.expr(value);
            }
            Rule::Spec { head, bodies, .. } => {
                match head {
                    RuleHead::Compr { refr, assign, .. } => {
                        self.head(refr);
                        self.assign(assign.as_ref());
                    }
                    RuleHead::Set { refr, key, .. } => {
                        self.head(refr);
                        self.each(key.as_slice());
                    }
                    RuleHead::Func { refr, args, assign, .. } => {
                        self.head(refr);
                        self.each(args);
                        self.assign(assign.as_ref());
                    }
                }
                for body in bodies {
                    self.assign(body.assign.as_ref());
                    self.query(&body.query);
                }
            }
        }
    }

    /// Collects calls in a head. The head itself only names the rule, but its indices can contain
    /// calls.
    fn head(&mut self, refr: &Expr) {
        if let Some((_, indices)) = split_reference(refr) {
            indices.into_iter().for_each(|index| self.expr(index));
        }
    }

    fn assign(&mut self, assign: Option<&RuleAssign>) {
        if let Some(assign) = assign {
            self.expr(&assign.value);
        }
    }

    fn each(&mut self, expressions: &[ExprRef]) {
        expressions.iter().for_each(|expr| self.expr(expr));
    }

    fn query(&mut self, query: &Query) {
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key, value, collection, ..
                } => {
                    self.each(key.as_slice());
                    self.expr(value);
                    self.expr(collection);
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr),
                Literal::Every { domain, query, .. } => {
                    self.expr(domain);
                    self.query(query);
                }
            }
            if let Some(with) = statement.with_mods.first() {
                let hint = "write the input of a test as a case in cases.yaml";
                let message = "`with` cannot be used in a policy";
                self.graph
                    .found
                    .push(Diagnostic::error(location(&with.span), message).with_hint(hint));
                for with in &statement.with_mods {
                    self.expr(&with.refr);
                    self.expr(&with.r#as);
                }
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::String { .. }
            | Expr::RawString { .. }
            | Expr::Number { .. }
            | Expr::Bool { .. }
            | Expr::Null { .. } => {}
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => match split_reference(expr) {
                Some((path, indices)) => {
                    self.reference(&path, start_of(expr));
                    indices.into_iter().for_each(|index| self.expr(index));
                }
                None => {
                    self.indices(expr);
                    self.expr(base(expr));
                }
            },
            Expr::Array { items, .. } | Expr::Set { items, .. } => self.each(items),
            Expr::Object { fields, .. } => fields.iter().for_each(|(_, key, value)| {
                self.expr(key);
                self.expr(value);
            }),
            Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
                self.expr(term);
                self.query(query);
            }
            Expr::ObjectCompr { key, value, query, .. } => {
                self.expr(key);
                self.expr(value);
                self.query(query);
            }
            Expr::Call { fcn, params, .. } => {
                self.call(fcn, params);
                self.each(params);
            }
            Expr::UnaryExpr { expr, .. } => self.expr(expr),
            Expr::BinExpr { lhs, rhs, .. }
            | Expr::BoolExpr { lhs, rhs, .. }
            | Expr::ArithExpr { lhs, rhs, .. }
            | Expr::AssignExpr { lhs, rhs, .. } => {
                self.expr(lhs);
                self.expr(rhs);
            }
            Expr::Membership {
                key, value, collection, ..
            } => {
                self.each(key.as_slice());
                self.expr(value);
                self.expr(collection);
            }
        }
    }

    fn indices(&mut self, expr: &Expr) {
        let mut expr = expr;
        loop {
            match expr {
                Expr::RefDot { refr, .. } => expr = refr,
                Expr::RefBrack { refr, index, .. } => {
                    self.expr(index);
                    expr = refr;
                }
                _ => return,
            }
        }
    }

    fn resolve(&self, path: &[String]) -> Option<Path> {
        resolve(self.package, |name| self.imports.get(name), path)
    }

    fn reference(&mut self, path: &[String], location: Location) {
        if let Some(("input", rest)) = path.split_first().map(|(first, rest)| (first.as_str(), rest)) {
            self.graph.record_input_path(rest, location);
        }
        let Some(path) = self.resolve(path) else { return };
        let reached = self.graph.possible_rules(&path);
        if let Some(node) = self.graph.nodes.get_mut(self.node) {
            node.edges.extend(reached);
        }
    }

    fn call(&mut self, function: &Expr, parameters: &[ExprRef]) {
        let Some((path, indices)) = split_reference(function) else {
            return self.expr(function);
        };
        indices.into_iter().for_each(|index| self.expr(index));
        let name = path.join(".");
        let rule = self
            .resolve(&path)
            .is_some_and(|path| !self.graph.possible_rules(&path).is_empty());
        if rule && !builtins::exists(&name) {
            return self.reference(&path, start_of(function));
        }
        if let Err(refusal) = builtins::check(&name, parameters) {
            self.graph
                .found
                .push(Diagnostic::error(start_of(function), refusal.message).with_hint(refusal.hint));
        }
    }
}
