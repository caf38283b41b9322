//! Estimates how large the values of a bundle can get at most, without evaluating it, and reports
//! what can get too large. It needs modules without cycles, the data and the schema of `input`.
//!
//! Values are shared: `x1 := [x0, x0]`, `x2 := [x1, x1]` and so on take memory for two items a
//! line, while the tree doubles. A single instruction (a comparison, a sort, an insertion into a
//! set) traverses the whole tree, and the engine checks the clock only between instructions. The
//! size that is bounded here is therefore that of the tree, not that of the memory. Each function
//! is examined once for every combination of argument sizes it is called with.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use regorus::unstable::{Expr, Literal, Module, Query, Rule, RuleHead, Span};
use serde_json::Value as Json;

use crate::builtins;
use crate::syntax::{self, Path};
use tollgate_core::diagnostic::Diagnostic;

mod references;
mod size;
pub(crate) mod variables;

use size::Size;
use variables::{BindingSite, RuleVariables, Source, Variable};

/// Maximum number of nodes of the tree of one value; 64 bytes of text are a node. Comparing two
/// such values takes some 0.1 s.
pub const MAX_TREE_NODES: u64 = 10_000_000;
/// Maximum number of nodes of all arguments of a function that takes texts or numbers. The engine
/// writes the arguments out even for the error that they have another type.
const MAX_WRITTEN_NODES: u64 = 50_000;
/// Maximum number of nodes of all arguments of a function that takes lists and tables.
const MAX_TABLE_NODES: u64 = 4_000_000;
/// Maximum number of nodes of a number: 16 KiB of digits. Multiplication and division take time
/// quadratic in it.
const MAX_NUMBER_NODES: u64 = 256;
/// Maximum nesting of one value. Operations that traverse a tree recurse once per level.
pub const MAX_TREE_DEPTH: u64 = 256;
/// Maximum number of expressions examined; a function counts again for every combination of
/// argument sizes.
const MAX_STEPS: u64 = 4_000_000;

/// Checks all modules together. Call it only if there are no cycles.
pub(crate) fn check(modules: &[Module], data: &Json, schema: &Json) -> Vec<Diagnostic> {
    let mut estimator = SizeEstimator::new(modules, data, schema);
    let paths: Vec<Path> = estimator.rules.keys().cloned().collect();
    for path in paths {
        // One finding is enough: a value that is too large makes all that refers to it too large.
        if let Err(finding) = estimator.value(&path, None) {
            return vec![*finding];
        }
    }
    Vec::new()
}

type SizeResult = Result<Size, Box<Diagnostic>>;

struct Definition<'a> {
    rule: &'a Rule,
    context: Rc<ModuleContext>,
    variables: RuleVariables<'a>,
}

struct ModuleContext {
    package: Path,
    imports: BTreeMap<String, Path>,
}

struct SizeEstimator<'a> {
    rules: BTreeMap<Path, Vec<Rc<Definition<'a>>>>,
    data: &'a Json,
    schema: &'a Json,
    steps: u64,
    /// Sizes of rules, and of functions by the sizes of their arguments.
    sizes: HashMap<(Path, Option<Vec<Size>>), Size>,
    /// Sizes of paths in the data files and in `input`.
    outside: HashMap<Path, Size>,
}

/// The context of an expression: a definition and its arguments.
struct Scope<'a> {
    definition: Rc<Definition<'a>>,
    arguments: Vec<Size>,
    sizes: HashMap<Variable<'a>, Size>,
    /// Variables whose size is being computed, outermost first, each with the number of queries
    /// open when it was started.
    open: Vec<(Variable<'a>, usize)>,
    /// Index in `open` of the outermost variable that was reached again.
    cycle_start: usize,
    queries: usize,
}

fn too_large(span: &Span, message: String, hint: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::error(syntax::location(span), message).with_hint(hint))
}

fn checked(size: Size, span: &Span) -> SizeResult {
    if size.tree > MAX_TREE_NODES {
        let observed = match size.tree {
            u64::MAX => "any number of".to_owned(),
            tree => tree.to_string(),
        };
        let message = format!(
            "the value can have {observed} nodes, counting shared parts each time they occur; {MAX_TREE_NODES} are allowed"
        );
        let hint = "do not put one value into another several times, or again in each turn of a loop; refer to it by a name or key";
        return Err(too_large(span, message, hint));
    }
    if size.depth > MAX_TREE_DEPTH {
        let message = format!(
            "the value can be nested {} deep, {MAX_TREE_DEPTH} levels are allowed",
            size.depth
        );
        return Err(too_large(span, message, "build flat values"));
    }
    Ok(size)
}

impl<'a> SizeEstimator<'a> {
    fn new(modules: &'a [Module], data: &'a Json, schema: &'a Json) -> Self {
        let mut arities = BTreeMap::new();
        let mut heads = Vec::new();
        let contexts: BTreeMap<_, _> = syntax::imports(modules)
            .into_iter()
            .map(|(package, imports)| (package.clone(), Rc::new(ModuleContext { package, imports })))
            .collect();
        for module in modules {
            let Some(context) = contexts.get(&syntax::package(module)) else {
                continue;
            };
            for rule in &module.policy {
                let path = syntax::rule_path(&context.package, rule);
                if let Some(arity) = syntax::arity(rule) {
                    arities.insert(path.clone(), arity);
                }
                heads.push((path, rule, Rc::clone(context)));
            }
        }
        let mut rules: BTreeMap<Path, Vec<_>> = BTreeMap::new();
        for (path, rule, context) in heads {
            let arity = |function: &Expr| references::arity(&context, &arities, function);
            let variables = RuleVariables::collect(rule, &arity);
            rules.entry(path).or_default().push(Rc::new(Definition {
                rule,
                context,
                variables,
            }));
        }
        Self {
            rules,
            data,
            schema,
            steps: 0,
            sizes: HashMap::new(),
            outside: HashMap::new(),
        }
    }

    /// The size of the value of a rule, or of the result of a function for arguments of these sizes.
    fn value(&mut self, path: &Path, arguments: Option<Vec<Size>>) -> SizeResult {
        let key = (path.clone(), arguments);
        if let Some(&size) = self.sizes.get(&key) {
            return Ok(size);
        }
        let size = self.definitions(path, key.1.as_deref())?;
        self.sizes.insert(key, size);
        Ok(size)
    }

    fn definitions(&mut self, path: &Path, arguments: Option<&[Size]>) -> SizeResult {
        let definitions = self.rules.get(path).cloned().unwrap_or_default();
        let mut size = Size::NONE;
        for definition in definitions {
            // A reference to a function without a call does not run it.
            if syntax::arity(definition.rule).is_some() && arguments.is_none() {
                size = size.either(Size::ONE);
                continue;
            }
            let arguments = arguments.unwrap_or_default().iter();
            let mut scope = Scope {
                definition,
                // Arguments exist before the call, so its loops refer to them and do not build them.
                arguments: arguments.map(|argument| argument.into_shared()).collect(),
                sizes: HashMap::new(),
                open: Vec::new(),
                cycle_start: usize::MAX,
                queries: 0,
            };
            size = self.definition(&mut scope, size)?;
        }
        Ok(size)
    }

    /// The size `so_far`, extended by what one definition adds.
    fn definition(&mut self, scope: &mut Scope<'a>, so_far: Size) -> SizeResult {
        let rule = scope.definition.rule;
        let (head, bodies) = match rule {
            Rule::Default { value, .. } => return Ok(so_far.either(self.expr(scope, value)?)),
            Rule::Spec { head, bodies, .. } => (head, bodies),
        };
        let mut iterations = 1_u64;
        let (name, _, value) = syntax::head_parts(head);
        let mut value = match value {
            Some(value) => self.expr_in_loop(scope, value, &mut iterations)?,
            None => Size::ONE,
        };
        for body in bodies {
            let mut own = self.query(scope, &body.query)?;
            if let Some(assign) = &body.assign {
                value = value.either(self.expr_in_loop(scope, &assign.value, &mut own)?);
            }
            iterations = iterations.saturating_mul(own);
        }
        let mut levels = self.keys_of_head(scope, name, &mut iterations)?;
        let partial = matches!(head, RuleHead::Set { .. }) || !levels.is_empty();
        if !partial {
            return Ok(so_far.either(value));
        }
        let innermost = match head {
            RuleHead::Set { .. } => None,
            RuleHead::Compr { .. } | RuleHead::Func { .. } => levels.pop(),
        };
        let mut size = Size::collected(innermost, value, iterations);
        while let Some(key) = levels.pop() {
            let keys = Size::collected(Some(key), Size::ONE, iterations);
            size = Size::literal([(Some(key), size)].into_iter()).joined(keys);
        }
        checked(so_far.joined(size), rule.span())
    }

    /// Sizes of the keys in brackets behind the path of a rule: `p[key][key]`.
    fn keys_of_head(
        &mut self,
        scope: &mut Scope<'a>,
        head: &'a Expr,
        iterations: &mut u64,
    ) -> Result<Vec<Size>, Box<Diagnostic>> {
        let steps = syntax::steps(head);
        let mut keys = Vec::new();
        for step in steps.into_iter().skip_while(|step| step.fixed().is_some()) {
            keys.push(match step {
                syntax::Step::Fixed(text) => Size::text(text.len()),
                syntax::Step::Index(index) => self.expr_in_loop(scope, index, iterations)?,
            });
        }
        Ok(keys)
    }

    /// The size of an expression. Multiplies `iterations` by those of the expression itself, such as
    /// `data.names[_]`.
    fn expr_in_loop(&mut self, scope: &mut Scope<'a>, expr: &'a Expr, iterations: &mut u64) -> SizeResult {
        *iterations = iterations.saturating_mul(self.iterations(scope, expr)?);
        self.expr(scope, expr)
    }

    /// Examines all statements. Returns the maximum number of iterations in which they all hold.
    fn query(&mut self, scope: &mut Scope<'a>, query: &'a Query) -> Result<u64, Box<Diagnostic>> {
        scope.queries += 1;
        let mut iterations = 1_u64;
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key, value, collection, ..
                } => {
                    for expr in key.iter().chain([value]) {
                        self.expr(scope, expr)?;
                    }
                    let collection = self.expr_in_loop(scope, collection, &mut iterations)?;
                    iterations = iterations.saturating_mul(collection.length.max(1));
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => {
                    self.expr_in_loop(scope, expr, &mut iterations)?;
                }
                Literal::Every { domain, query, .. } => {
                    self.expr_in_loop(scope, domain, &mut iterations)?;
                    self.query(scope, query)?;
                }
            }
        }
        scope.queries -= 1;
        Ok(iterations)
    }

    /// The number of items that the indices in an expression iterate over, without comprehensions.
    fn iterations(&mut self, scope: &mut Scope<'a>, expr: &'a Expr) -> Result<u64, Box<Diagnostic>> {
        let mut iterations = 1_u64;
        let mut pending: Vec<&'a Expr> = vec![expr];
        while let Some(expr) = pending.pop() {
            if let Expr::RefBrack { refr, index, .. } = expr
                && scope.definition.variables.iterates(index)
            {
                iterations = iterations.saturating_mul(self.expr(scope, refr)?.length.max(1));
            }
            let syntax::Parts { exprs, query } = syntax::parts(expr);
            if query.is_none() {
                pending.extend(exprs);
            }
        }
        Ok(iterations)
    }
}

#[cfg(test)]
mod tests;
