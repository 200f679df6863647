//! Takes all mutants of a file into its source, each as a choice at run time.

use crate::Mutant;
use proc_macro2::{LineColumn, Span};
use std::collections::BTreeMap;
use syn::spanned::Spanned as _;
use syn::visit::Visit;
use syn::visit_mut::{self, VisitMut};
use syn::{Arm, BinOp, Block, Expr, ExprBinary, ExprIf, ExprStruct, ExprUnary, ReturnType, parse_quote};

/// From line and column to line and column, lines from 1 and columns from 0.
pub type Range = ((usize, usize), (usize, usize));

pub fn range(span: Span) -> Range {
    let at = |place: LineColumn| (place.line, place.column);
    (at(span.start()), at(span.end()))
}

fn within(inner: Range, outer: Range) -> bool {
    outer.0 <= inner.0 && inner.1 <= outer.1
}

/// The source with the mutants woven in, and the numbers of those that are not: what does not compile, and what has no place.
pub fn weave(source: &str, mutants: &[&Mutant]) -> (String, Vec<usize>, Vec<usize>) {
    let mut file = syn::parse_file(source).expect("the source is Rust");
    let mut at: BTreeMap<Range, Vec<Mutant>> = BTreeMap::new();
    for mutant in mutants {
        at.entry(mutant.range).or_default().push((*mutant).clone());
    }
    let mut weaver = Weaver { at, impossible: Vec::new() };
    weaver.visit_file_mut(&mut file);
    let left = weaver.at.into_values().flatten().map(|mutant| mutant.number).collect();
    (prettyplease::unparse(&file), weaver.impossible, left)
}

struct Weaver {
    at: BTreeMap<Range, Vec<Mutant>>,
    impossible: Vec<usize>,
}

impl Weaver {
    fn take(&mut self, at: Range, genre: &str) -> Vec<Mutant> {
        let Some(all) = self.at.get_mut(&at) else { return Vec::new() };
        let (taken, left) = all.drain(..).partition(|mutant| mutant.genre == genre);
        *all = left;
        taken
    }

    fn body(&mut self, signature: &syn::Signature, block: &mut Block) {
        // What is listed is what stands between the braces.
        let Some((first, last)) = block.stmts.first().zip(block.stmts.last()) else { return };
        let inside = (range(first.span()).0, range(last.span()).1);
        // Where the type is left to the body, two of them have none.
        let open =
            matches!(&signature.output, ReturnType::Type(_, of) if matches!(**of, syn::Type::ImplTrait(_)));
        let mutants = if open { Vec::new() } else { self.take(inside, "FnValue") };
        visit_mut::visit_block_mut(self, block);
        for Mutant { number, replacement, .. } in mutants.into_iter().rev() {
            let instead: Expr = syn::parse_str(&replacement).expect("a replacement is Rust");
            block.stmts.insert(0, parse_quote!(if crate::mutant::is(#number) { return #instead; }));
        }
    }
}

/// `mutants`, each in its own branch, and else what was there.
fn choice(original: Expr, mutants: Vec<(usize, Expr)>) -> Expr {
    mutants.into_iter().fold(
        original,
        |rest, (number, mutated)| parse_quote!((if crate::mutant::is(#number) { #mutated } else { #rest })),
    )
}

/// Whether a `let` of a condition stands in `expr`: there is nothing but `&&` for it.
fn binds(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => binds(left) || binds(right),
        _ => false,
    }
}

impl VisitMut for Weaver {
    fn visit_item_fn_mut(&mut self, item: &mut syn::ItemFn) {
        self.body(&item.sig, &mut item.block);
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        self.body(&item.sig, &mut item.block);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut syn::TraitItemFn) {
        if let Some(block) = &mut item.default {
            self.body(&item.sig, block);
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let before = expr.clone();
        let mutants: Vec<(usize, Expr)> = match &before {
            Expr::Binary(binary) if binds(&before) => {
                let all = self.take(range(binary.op.span()), "BinaryOperator");
                self.impossible.extend(all.into_iter().map(|mutant| mutant.number));
                Vec::new()
            }
            Expr::Binary(binary) => {
                let all = self.take(range(binary.op.span()), "BinaryOperator");
                all.into_iter()
                    .map(|Mutant { number, replacement, .. }| {
                        let op: BinOp = syn::parse_str(&replacement).expect("a replacement is an operator");
                        (number, Expr::Binary(ExprBinary { op, ..binary.clone() }))
                    })
                    .collect()
            }
            Expr::Unary(ExprUnary { op, expr: operand, .. }) => {
                let all = self.take(range(op.span()), "UnaryOperator");
                all.into_iter().map(|mutant| (mutant.number, (**operand).clone())).collect()
            }
            Expr::Struct(whole) => {
                let mut without = Vec::new();
                for (index, field) in whole.fields.pairs().enumerate() {
                    let end = field.punct().map_or(field.value().span(), |comma| comma.span());
                    let at = (range(field.value().span()).0, range(end).1);
                    for mutant in self.take(at, "StructField") {
                        let others = whole.fields.iter().enumerate().filter(|(other, _)| *other != index);
                        let mut fields: syn::punctuated::Punctuated<_, syn::Token![,]> =
                            others.map(|(_, field)| field.clone()).collect();
                        // A comma stands before what the others are taken from.
                        if whole.dot2_token.is_some() && !fields.empty_or_trailing() {
                            fields.push_punct(Default::default());
                        }
                        without.push((mutant.number, Expr::Struct(ExprStruct { fields, ..whole.clone() })));
                    }
                }
                without
            }
            _ => Vec::new(),
        };
        visit_mut::visit_expr_mut(self, expr);
        if !mutants.is_empty() {
            *expr = choice(expr.clone(), mutants);
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut Arm) {
        let deleted = self.take(range(arm.span()), "MatchArm");
        let guards = match &arm.guard {
            Some((_, guard)) => self.take(range(guard.span()), "MatchArmGuard"),
            None => Vec::new(),
        };
        visit_mut::visit_arm_mut(self, arm);
        if let Some((_, guard)) = &mut arm.guard {
            let instead = guards.into_iter().map(|mutant| {
                (mutant.number, syn::parse_str(&mutant.replacement).expect("a replacement is Rust"))
            });
            **guard = choice((**guard).clone(), instead.collect());
        }
        for Mutant { number, .. } in deleted {
            let guard: Expr = match arm.guard.take() {
                Some((_, guard)) => parse_quote!(!crate::mutant::is(#number) && (#guard)),
                None => parse_quote!(!crate::mutant::is(#number)),
            };
            arm.guard = Some((Default::default(), Box::new(guard)));
        }
    }
}

/// Where each mutant stands in a woven source, to tell whose an error is.
#[derive(Default)]
pub struct Places(Vec<(usize, Range, Range, Range)>);

impl Places {
    pub fn of(woven: &str) -> Places {
        let mut places = Places::default();
        places.visit_file(&syn::parse_file(woven).expect("what was woven is Rust"));
        places
    }

    /// The mutants whose own code the place is in, or whose choice; the innermost.
    pub fn mutant_at(&self, at: Range) -> Option<(usize, bool)> {
        let innermost = |part: fn(&(usize, Range, Range, Range)) -> Range| {
            let holding = self.0.iter().filter(|place| within(at, part(place)));
            holding.max_by_key(|place| part(place).0).map(|place| place.0)
        };
        let condition = innermost(|place| place.1).map(|number| (number, true));
        condition.or(innermost(|place| place.2).map(|number| (number, false)))
    }

    pub fn choice_at(&self, at: Range) -> Option<usize> {
        let holding = self.0.iter().filter(|place| within(at, place.3));
        holding.max_by_key(|place| place.3.0).map(|place| place.0)
    }
}

fn chosen(condition: &Expr) -> Option<usize> {
    let Expr::Call(call) = condition else { return None };
    let Expr::Path(path) = &*call.func else { return None };
    let names: Vec<String> = path.path.segments.iter().map(|part| part.ident.to_string()).collect();
    let Some(Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. })) = call.args.first() else {
        return None;
    };
    (names == ["crate", "mutant", "is"]).then(|| number.base10_parse().expect("it was a number"))
}

impl<'ast> Visit<'ast> for Places {
    fn visit_expr_if(&mut self, expr: &'ast ExprIf) {
        if let Some(number) = chosen(&expr.cond) {
            let part = range(expr.then_branch.span());
            self.0.push((number, range(expr.cond.span()), part, range(expr.span())));
        }
        syn::visit::visit_expr_if(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        for arm in &expr.arms {
            let Some((_, guard)) = &arm.guard else { continue };
            let mut first = &**guard;
            while let Expr::Binary(binary) = first {
                first = &binary.left;
            }
            // That something is not matched is told of what is matched.
            if let Expr::Unary(unary) = first
                && let Some(number) = chosen(&unary.expr)
            {
                self.0.push((number, Range::default(), Range::default(), range(expr.expr.span())));
            }
        }
        syn::visit::visit_expr_match(self, expr);
    }
}
