#include "symbolic/polynomial.h"

#include <algorithm>
#include <numeric>

#include "symbolic/arithmetic.h"
#include "symbolic/expr_nodes.h"

namespace opwright {
namespace {

// Limits far beyond the shapes of real networks. They keep every operation cheap.
constexpr size_t kMaxTerms = 32;
constexpr size_t kMaxFactors = 32;

using Factors = std::vector<Expr>;

bool factors_before(const Factors& a, const Factors& b) {
  if (a.size() != b.size()) return a.size() > b.size();
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return ExprNodes::before(a[i], b[i]);
  return false;
}

Factors product(const Factors& a, const Factors& b) {
  Factors all;
  all.reserve(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all), ExprNodes::before);
  return all;
}

/// a / b; empty if b does not divide a.
std::optional<Factors> quotient(const Factors& a, const Factors& b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end(), ExprNodes::before))
    return std::nullopt;
  Factors rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest),
                      ExprNodes::before);
  return rest;
}

Factors common(const Factors& a, const Factors& b) {
  Factors both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both),
                        ExprNodes::before);
  return both;
}

Term term_of(const Expr& e) {
  if (e.is_constant()) return {e.constant(), {}};
  if (e.op() != ExprOp::kProd || ExprNodes::is_opaque(e)) return {1, {e}};
  Term term{1, {}};
  for (int i = 0; i < e.arity(); ++i) {
    if (e.operand(i).is_constant())
      term.coefficient = e.operand(i).constant();
    else
      term.factors.push_back(e.operand(i));
  }
  return term;
}

/// The magnitude as an unsigned number: that of the smallest integer has no signed counterpart.
uint64_t magnitude(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

/// The largest term that divides every term of p and of `seed`; its coefficient is positive.
Term content(const Polynomial& p, const Term& seed) {
  uint64_t divisor = magnitude(seed.coefficient);
  Factors factors = seed.factors;
  for (const Term& term : p) {
    divisor = std::gcd(divisor, magnitude(term.coefficient));
    factors = common(factors, term.factors);
  }
  if (divisor > magnitude(INT64_MAX)) divisor = 1;
  return {static_cast<int64_t>(divisor), std::move(factors)};
}

/// p / t, if t divides every term.
Polynomial exact_quotient(const Polynomial& p, const Term& t) {
  Polynomial result;
  for (const Term& term : p)
    result.push_back({term.coefficient / t.coefficient, *quotient(term.factors, t.factors)});
  return result;
}

struct Division {
  Polynomial quotient, remainder;
};

/// Divides with remainder in one pass over the terms of `a`, each by the first term of `b`.
std::optional<Division> divide(const Polynomial& a, const Polynomial& b) {
  const Term& lead = b.front();
  Division result;
  Polynomial rest = a;
  for (size_t steps = 0; !rest.empty(); ++steps) {
    if (steps > 4 * kMaxTerms) return std::nullopt;
    const Term first = rest.front();
    const auto factors = quotient(first.factors, lead.factors);
    if (!factors || first.coefficient % lead.coefficient != 0) {
      result.remainder.push_back(first);
      rest.erase(rest.begin());
      continue;
    }
    const Polynomial step{{first.coefficient / lead.coefficient, *factors}};
    const auto part = multiply(step, b);
    auto left = part ? add(rest, *part, -1) : std::nullopt;
    if (!left) return std::nullopt;
    rest = std::move(*left);
    result.quotient.push_back(step.front());  // in order, as first terms only get smaller
  }
  return result;
}

/// Divides numerator and divisor by their common factors.
void cancel(Fraction& f) {
  const Term both = content(f.divisor, content(f.numerator, f.numerator.front()));
  f.numerator = exact_quotient(f.numerator, both);
  f.divisor = exact_quotient(f.divisor, both);
}

}  // namespace

Polynomial polynomial_of(const Expr& e) {
  if (e.is_constant() && e.constant() == 0) return {};
  if (e.op() != ExprOp::kSum || ExprNodes::is_opaque(e)) return {term_of(e)};
  Polynomial p;
  p.reserve(static_cast<size_t>(e.arity()));
  for (int i = 0; i < e.arity(); ++i) p.push_back(term_of(e.operand(i)));
  return p;
}

Expr to_expr(const Polynomial& p) {
  std::vector<Expr> terms;
  terms.reserve(p.size());
  for (const Term& term : p) {
    if (term.factors.empty()) {
      terms.push_back(term.coefficient);
    } else if (term.coefficient == 1 && term.factors.size() == 1) {
      terms.push_back(term.factors.front());
    } else {
      Factors operands = term.factors;
      if (term.coefficient != 1) operands.push_back(term.coefficient);
      terms.push_back(ExprNodes::make(ExprOp::kProd, std::move(operands)));
    }
  }
  if (terms.empty()) return 0;
  if (terms.size() == 1) return terms.front();
  return ExprNodes::make(ExprOp::kSum, std::move(terms));
}

std::optional<Polynomial> add(Polynomial a, const Polynomial& b, int64_t scale) {
  Polynomial sum;
  sum.reserve(a.size() + b.size());
  auto x = a.begin();
  for (const Term& y : b) {
    while (x != a.end() && factors_before(x->factors, y.factors)) sum.push_back(std::move(*x++));
    int64_t coefficient = 0;
    if (__builtin_mul_overflow(y.coefficient, scale, &coefficient)) return std::nullopt;
    if (x != a.end() && x->factors == y.factors)
      if (__builtin_add_overflow(coefficient, (x++)->coefficient, &coefficient))
        return std::nullopt;
    if (coefficient) sum.push_back({coefficient, y.factors});
  }
  std::move(x, a.end(), std::back_inserter(sum));
  if (sum.size() > kMaxTerms) return std::nullopt;
  return sum;
}

std::optional<Polynomial> multiply(const Polynomial& a, const Polynomial& b) {
  Polynomial all;
  all.reserve(a.size() * b.size());
  for (const Term& x : a) {
    for (const Term& y : b) {
      Term term;
      if (__builtin_mul_overflow(x.coefficient, y.coefficient, &term.coefficient) ||
          x.factors.size() + y.factors.size() > kMaxFactors)
        return std::nullopt;
      term.factors = product(x.factors, y.factors);
      all.push_back(std::move(term));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Term& x, const Term& y) {
    return factors_before(x.factors, y.factors);
  });
  Polynomial result;
  for (Term& term : all) {
    if (!result.empty() && result.back().factors == term.factors) {
      int64_t& sum = result.back().coefficient;
      if (__builtin_add_overflow(sum, term.coefficient, &sum)) return std::nullopt;
    } else {
      if (!result.empty() && result.back().coefficient == 0) result.pop_back();
      result.push_back(std::move(term));
    }
  }
  if (!result.empty() && result.back().coefficient == 0) result.pop_back();
  if (result.size() > kMaxTerms) return std::nullopt;
  return result;
}

std::optional<Fraction> reduce(const Polynomial& a, const Polynomial& b) {
  const bool negative = b.front().coefficient < 0;
  const auto numerator = add({}, a, negative ? -1 : 1);
  const auto divisor = add({}, b, negative ? -1 : 1);
  if (!numerator || !divisor) return std::nullopt;
  Fraction f{{}, *numerator, *divisor};

  // Dividing by one term always simplifies. Dividing by several terms simplifies only without
  // remainder.
  if (auto division = divide(f.numerator, f.divisor);
      division && (f.divisor.size() == 1 || division->remainder.empty())) {
    f.whole = std::move(division->quotient);
    f.numerator = std::move(division->remainder);
  }
  if (f.numerator.empty()) return f;
  cancel(f);

  if (f.divisor.size() > 1) {  // the divisor may be c * p, where p divides the numerator
    const Term c = content(f.divisor, f.divisor.front());
    const auto division = divide(f.numerator, exact_quotient(f.divisor, c));
    if (division && division->remainder.empty()) {
      f.numerator = division->quotient;
      f.divisor = {c};
      cancel(f);
    }
  }
  return f;
}

}  // namespace opwright
