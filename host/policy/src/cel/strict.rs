//! Makes an expression fail where cel-go's does and the crate's does not: a list and a map are not
//! added, and an optional field or index of what has none fails instead of being absent.

use cel::ExecutionError;
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, operators};
use cel::common::types::{CelOptional, Kind};
use cel::common::value::CowVal;

/// Adds two values, both or neither of them lists.
pub(super) const ADD: &str = "@add";
/// Passes on a value that can be asked for the index.
pub(super) const INDEXED: &str = "@indexed";

/// The expression with those operators replaced.
pub(super) fn strict(expr: &IdedExpr) -> IdedExpr {
    let mut expr = expr.clone();
    replace(&mut expr, "");
    expr
}

/// - `result`: variable of the list that a macro builds, to which it adds items.
fn replace(expr: &mut IdedExpr, result: &str) {
    match &mut expr.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) => {}
        Expr::Select(select) => replace(&mut select.operand, result),
        Expr::List(list) => list.elements.iter_mut().for_each(|item| replace(item, result)),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    replace(&mut entry.key, result);
                    replace(&mut entry.value, result);
                }
            }
        }
        Expr::Comprehension(comprehension) => {
            replace(&mut comprehension.iter_range, result);
            replace(&mut comprehension.accu_init, result);
            let own = comprehension.accu_var.clone();
            for part in [
                &mut comprehension.loop_cond,
                &mut comprehension.loop_step,
                &mut comprehension.result,
            ] {
                replace(part, &own);
            }
        }
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| replace(target, result));
            call.args.iter_mut().for_each(|argument| replace(argument, result));
            replace_call(call, result);
        }
    }
}

fn replace_call(call: &mut CallExpr, result: &str) {
    let is_result = |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if name == result);
    let is_index = [operators::OPT_INDEX, operators::OPT_SELECT].contains(&call.func_name.as_str());
    match call.args.as_mut_slice() {
        [list, _] if call.func_name == operators::ADD && !is_result(list) => ADD.clone_into(&mut call.func_name),
        [of, index] if is_index => {
            let args = vec![std::mem::take(of), index.clone()];
            of.expr = Expr::Call(CallExpr {
                func_name: INDEXED.to_owned(),
                target: None,
                args,
            });
        }
        _ => {}
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the crate's signature of an overload")]
pub(super) fn add<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let [one, other] = args.as_slice() else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let is_list = |value: &CowVal<'_, '_>| value.get_type().kind() == Kind::List;
    let unsupported = || ExecutionError::function_error("_+_", "the operands have other types");
    if is_list(one) != is_list(other) {
        return Err(unsupported());
    }
    let sum = one.as_adder().ok_or_else(unsupported)?.add(other.as_ref())?;
    Ok(CowVal::Owned(sum.into_owned()))
}

pub(super) fn indexed<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (Some(index), Some(of)) = (args.pop(), args.pop()) else {
        return Err(ExecutionError::missing_argument_or_target());
    };
    let optional = of.downcast_ref::<CelOptional<'_>>();
    let inner = optional.map(|optional| optional.inner().map(|value| value.get_type().kind()));
    let kind = match inner {
        Some(None) => return Ok(of),
        Some(Some(kind)) => kind,
        None => of.get_type().kind(),
    };
    let index = index.get_type().kind();
    let is_number = matches!(index, Kind::Int | Kind::UInt | Kind::Double);
    match kind {
        Kind::Map if is_number || matches!(index, Kind::String | Kind::Boolean) => Ok(of),
        Kind::List if is_number => Ok(of),
        _ => Err(ExecutionError::function_error(
            "_[?_]",
            "no field or index of that type",
        )),
    }
}
