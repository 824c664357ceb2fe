#!/bin/sh
# publish.sh CHECKOUT SITE VERSION: puts a built site into the branch gh-pages of a
# checkout's origin, as the folder VERSION, and pushes it. `versions.json` there
# names all folders, for the switcher; the root leads to `latest`.
set -eu
checkout=$1 site=$2 version=$3
case $version in
latest | v[0-9]*) ;;
*) echo "publish.sh: a version is 'latest' or a tag, not '$version'" >&2; exit 2 ;;
esac
pages=$(mktemp -d)
origin=$(git -C "$checkout" rev-parse --show-toplevel)
if git -C "$checkout" fetch --quiet --depth 1 origin gh-pages 2>/dev/null; then
  git -C "$checkout" worktree add --quiet --detach "$pages" FETCH_HEAD
else
  git -C "$checkout" worktree add --quiet --detach --no-checkout "$pages"
  git -C "$pages" symbolic-ref HEAD refs/heads/gh-pages # without a parent
  git -C "$pages" read-tree --empty
fi
rm -rf "${pages:?}/$version"
cp -R "$site" "$pages/$version"
touch "$pages/.nojekyll" # else Pages leaves out _static
printf '%s\n' '<!doctype html><meta charset="utf-8"><title>keras_posenc</title>' \
  '<meta http-equiv="refresh" content="0; url=latest/">' \
  '<a href="latest/">keras_posenc</a>' >"$pages/index.html"
(
  cd "$pages"
  for folder in latest $(ls -d v[0-9]* 2>/dev/null | sort -rV); do
    test ! -d "$folder" || printf '"%s"\n' "$folder"
  done | paste -sd, - | sed 's/.*/[&]/' >versions.json
  git add -A
  if git diff --cached --quiet; then exit 0; fi # nothing has changed
  git -c user.name='github-actions[bot]' \
    -c user.email='41898282+github-actions[bot]@users.noreply.github.com' \
    commit --quiet -m "The site of $version"
  git push --quiet "$(git remote get-url origin)" HEAD:refs/heads/gh-pages
)
git -C "$origin" worktree remove --force "$pages"
