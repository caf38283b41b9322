//! Checks the call graph of a bundle, without evaluating it. Findings are cycles, chains that are
//! too long, calls of functions that are not allowed, and `with`.
//!
//! A function that calls itself overflows the stack of the process. The check for
//! cycles therefore covers all rules and functions of all packages. A reference that cannot be
//! resolved exactly counts for every rule that it could mean.

use std::collections::{BTreeMap, BTreeSet};

use regorus::unstable::{Expr, ExprRef, Literal, Module, Query, Rule};

use serde_json::Value;

use crate::dependencies::InputDependencies;
use crate::syntax::{self, Path, fixed_start, location, start_of};
use crate::{builtins, depth, schema};
use tollgate_core::diagnostic::{Diagnostic, Location};

/// Maximum depth of calls among rules and functions.
pub const MAX_CALL_DEPTH: usize = 32;
/// Maximum levels of expressions, queries, loops and calls within one another.
pub const MAX_LEVELS: usize = 2_000;

/// What the rules of a bundle need.
pub(crate) struct Needs {
    /// The parts of `input` that rules name.
    pub(crate) input: InputDependencies,
    /// The paths, below `data`, of the rules that can be evaluated for a decision.
    pub(crate) rules: BTreeSet<Path>,
}

/// Checks all modules together. `entry` is the path of the rule that decides.
///
/// # Errors
/// The findings.
pub(crate) fn check(modules: &[Module], entry: &[&str], schema: &Value) -> Result<Needs, Vec<Diagnostic>> {
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
    let imports = syntax::imports(modules);
    for module in modules {
        graph.collect(module, &imports);
    }
    let cycles = graph.cycles();
    graph.found.extend(cycles);
    for (path, location) in &graph.input_paths {
        graph.found.extend(schema::unknown_field(schema, path, location));
    }
    if graph.found.is_empty() {
        Ok(Needs {
            rules: graph.reached_from(&entry),
            input: graph.dependencies,
        })
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
    /// Levels of its deepest definition.
    levels: usize,
}

/// The longest chain that starts at a rule.
#[derive(Clone, Copy, Default)]
struct Chain {
    rules: usize,
    levels: usize,
}

impl Graph {
    fn declare(&mut self, module: &Module) {
        let package = syntax::package(module);
        for rule in &module.policy {
            let path = syntax::rule_path(&package, rule);
            let next = self.nodes.len();
            let span = rule.span();
            if *self.rules.entry(path.clone()).or_insert(next) == next {
                self.nodes.push(Node {
                    name: path.join("."),
                    location: location(span),
                    edges: BTreeSet::new(),
                    levels: 0,
                });
            }
            let name = syntax::dotted(syntax::head_of(rule));
            if builtins::exists(&name) {
                let message = format!("rule `{name}` hides a built-in function");
                self.found
                    .push(Diagnostic::error(location(span), message).with_hint("give it another name"));
            }
        }
    }

    fn collect(&mut self, module: &Module, imports: &BTreeMap<Path, BTreeMap<String, Path>>) {
        let package = syntax::package(module);
        let no_imports = BTreeMap::new();
        let imports = imports.get(&package).unwrap_or(&no_imports);
        for import in &module.imports {
            let Some((name, path)) = syntax::import(import) else {
                continue;
            };
            // Uses of the alias are not analyzed, so the whole path counts as read.
            if let [root, path @ ..] = &*path
                && root == "input"
            {
                self.record_input_path(path, location(&import.span));
            }
            self.check_import(&package, imports, &name, &path, location(&import.span));
        }
        for rule in &module.policy {
            let Some(&node) = self.rules.get(&syntax::rule_path(&package, rule)) else {
                continue;
            };
            if let Some(node) = self.nodes.get_mut(node) {
                node.levels = node.levels.max(depth::of_rule(rule));
            }
            let mut visitor = RuleVisitor {
                graph: self,
                package: &package,
                imports,
                node,
            };
            visitor.rule(rule);
        }
    }

    /// Refuses an import whose name means something else elsewhere in the package. regorus would
    /// choose one meaning for all files: the rule before an import, and the last of two imports.
    fn check_import(
        &mut self,
        package: &[String],
        imports: &BTreeMap<String, Path>,
        name: &String,
        path: &Path,
        location: Location,
    ) {
        let rule: Path = package.iter().chain([name]).cloned().collect();
        let other = imports.get(name).filter(|other| *other != path);
        let other = match other {
            Some(other) => format!("also an import of `{}`", other.join(".")),
            None if syntax::rules_below(&self.rules, &rule).next().is_some() => "also a rule".to_owned(),
            None => return,
        };
        let message = format!(
            "`{name}` is imported for `{}`, and in the same package it is {other}",
            path.join(".")
        );
        self.found
            .push(Diagnostic::error(location, message).with_hint("give the import another name with `as`"));
    }

    /// Records that a rule names `path` below `input`.
    fn record_input_path(&mut self, path: &[String], location: Location) {
        self.dependencies.record(path);
        self.input_paths.entry(path.to_vec()).or_insert(location);
    }

    /// Every rule that `path`, below `data`, could refer to: those below it and those above it.
    fn possible_rules(&self, path: &[String]) -> Vec<usize> {
        let below = syntax::rules_below(&self.rules, path);
        let above = (1..path.len()).filter_map(|length| self.rules.get_key_value(path.get(..length)?));
        below.chain(above).map(|(_, &node)| node).collect()
    }

    fn reached_from(&self, entry: &Path) -> BTreeSet<Path> {
        let mut reached = BTreeSet::new();
        let mut next = self.possible_rules(entry);
        while let Some(at) = next.pop() {
            if reached.insert(at) {
                next.extend(self.nodes.get(at).into_iter().flat_map(|node| &node.edges));
            }
        }
        let rules = self.rules.iter().filter(|(_, at)| reached.contains(at));
        rules.map(|(path, _)| path.clone()).collect()
    }

    fn cycles(&self) -> Vec<Diagnostic> {
        let (mut depths, mut found) = (BTreeMap::new(), Vec::new());
        for start in 0..self.nodes.len() {
            self.visit(start, &mut Vec::new(), &mut depths, &mut found);
        }
        found
    }

    /// The longest chain that starts at a rule. `trail` are the rules on the way to it, `depths` those
    /// that were visited before.
    fn visit(
        &self,
        at: usize,
        trail: &mut Vec<usize>,
        depths: &mut BTreeMap<usize, Chain>,
        found: &mut Vec<Diagnostic>,
    ) -> Chain {
        let Some(node) = self.nodes.get(at) else {
            return Chain::default();
        };
        if let Some(&depth) = depths.get(&at) {
            return depth;
        }
        if let Some(from) = trail.iter().position(|&earlier| earlier == at) {
            let circle = trail.iter().skip(from).chain([&at]);
            let names = circle.filter_map(|&each| self.nodes.get(each));
            let names: Vec<String> = names.map(|each| format!("`{}`", each.name)).take(12).collect();
            let message = format!("rules call one another in a circle: {}", names.join(" → "));
            let hint = "recursion is not possible in Rego; a variable with the name of a rule counts as that rule";
            found.push(Diagnostic::error(node.location.clone(), message).with_hint(hint));
            return Chain::default();
        }
        trail.push(at);
        let mut below = Chain::default();
        for &edge in &node.edges {
            let chain = self.visit(edge, trail, depths, found);
            below.rules = below.rules.max(chain.rules);
            below.levels = below.levels.max(chain.levels);
        }
        trail.pop();
        let depth = Chain {
            rules: below.rules + 1,
            levels: below.levels.saturating_add(node.levels),
        };
        // Reported where a bound is crossed, and not once more for each rule that uses this one.
        if below.levels <= MAX_LEVELS && depth.levels > MAX_LEVELS {
            let message = format!(
                "`{}` nests {} levels of expressions, loops and calls, {MAX_LEVELS} are allowed",
                node.name, depth.levels
            );
            let hint = "give parts a name, use fewer loops in one body, or move lists to data files";
            found.push(Diagnostic::error(node.location.clone(), message).with_hint(hint));
        }
        if depth.rules == MAX_CALL_DEPTH + 1 {
            let name = &node.name;
            let message =
                format!("`{name}` starts a chain of more than {MAX_CALL_DEPTH} rules that wait for one another");
            found.push(Diagnostic::error(node.location.clone(), message).with_hint("join some of them"));
        }
        depths.insert(at, depth);
        depth
    }
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
                let (name, arguments, value) = syntax::head_parts(head);
                // The head itself only names the rule, but its indices can contain calls.
                self.indices(name);
                self.each(arguments);
                value.into_iter().for_each(|value| self.expr(value));
                for body in bodies {
                    body.assign.iter().for_each(|assign| self.expr(&assign.value));
                    self.query(&body.query);
                }
            }
        }
    }

    fn indices(&mut self, reference: &Expr) {
        for index in syntax::steps(reference).iter().filter_map(syntax::Step::index) {
            self.expr(index);
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
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.statement(expr),
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

    /// As [`RuleVisitor::expr`], where a call of a built-in function may have one more argument, which
    /// takes its result.
    fn statement(&mut self, expr: &Expr) {
        let Expr::Call { fcn, params, .. } = expr else {
            return self.expr(expr);
        };
        let arity = fixed_start(fcn).and_then(|path| builtins::arity(&path.join(".")));
        match params.split_last() {
            Some((_, arguments)) if arity == Some(arguments.len()) => {
                self.call(fcn, arguments);
                self.parts(expr);
            }
            Some(_) | None => self.expr(expr),
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Var { .. } | Expr::RefDot { .. } | Expr::RefBrack { .. } => {
                match fixed_start(expr) {
                    Some(path) => self.reference(&path, start_of(expr)),
                    None => self.expr(syntax::base(expr)),
                }
                self.indices(expr);
                return;
            }
            Expr::Call { fcn, params, .. } => self.call(fcn, params),
            _ => {}
        }
        self.parts(expr);
    }

    fn parts(&mut self, expr: &Expr) {
        let syntax::Parts { exprs, query } = syntax::parts(expr);
        exprs.into_iter().for_each(|part| self.expr(part));
        query.into_iter().for_each(|query| self.query(query));
    }

    fn resolve(&self, path: &[String]) -> Option<Path> {
        let import = |name: &str| {
            self.imports
                .get(name)
                .filter(|path| path.first().is_some_and(|root| root == "data"))
        };
        syntax::resolve(self.package, import, path)
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
        let Some(path) = fixed_start(function) else {
            return self.expr(function);
        };
        self.indices(function);
        let name = path.join(".");
        let rule = self
            .resolve(&path)
            .is_some_and(|path| !self.graph.possible_rules(&path).is_empty());
        let is_imported = path.first().is_some_and(|first| self.imports.contains_key(first));
        if builtins::exists(&name) {
            // The engine calls what the policy names so, and what is checked is the built-in function.
            if rule || is_imported {
                let message = format!("`{name}` is a built-in function, and also a name of an import or a rule");
                self.graph.found.push(
                    Diagnostic::error(start_of(function), message).with_hint("give the import or rule another name"),
                );
                return;
            }
        } else if rule {
            return self.reference(&path, start_of(function));
        }
        if let Err(refusal) = builtins::check(&name, parameters) {
            self.graph
                .found
                .push(Diagnostic::error(start_of(function), refusal.message).with_hint(refusal.hint));
        }
    }
}
