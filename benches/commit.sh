#!/usr/bin/env bash
# What was measured: the commit that is checked out, with -dirty behind it if anything else than documents has changed since, which
# the figures themselves go into; `unknown` where git knows of none.
cd "$(dirname "$0")/.." || exit
commit=$(git rev-parse --verify --quiet HEAD 2>/dev/null) || { echo unknown && exit; }
[[ -z $(git status --porcelain -- . ':!docs' ':!README.md' ':!CHANGELOG.md') ]] || commit+=-dirty
echo "$commit"
