/* A search without the small words of a question, in the words of the site. docs/site_pages.py
   puts this into the worker that searches. */
const SMALL = new Set(
  ("a about an and any are as at be by can could do does for from get have how i if in into is it " +
    "make me my not of on or own should some than that the their them there this to use used using " +
    "want was we what when where which who why will with without would you your").split(" ")
);
const SAME = {
  accuracy: "metric",
  ann: "index",
  anonymous: "history",
  blacklist: "exclude",
  crash: "interrupts",
  dataframe: "table",
  delete: "forget",
  cancel: "interrupt",
  drifted: "drift",
  drifting: "drift",
  elastic: "elasticsearch",
  erase: "forget",
  lambda: "serverless",
  hyperparameter: "setting",
  hyperparameters: "settings",
  multitenant: "tenants",
  nightly: "night",
  retrain: "fit",
  retraining: "fit",
  semicolon: "separator",
  tenant: "tenants",
  visitor: "user",
  visitors: "users",
  whitelist: "allow",
};
// A word as it is counts more than longer words that begin with it: "new" before "newton".
function words(query) {
  const kept = [];
  for (const word of query.split(/\s+/)) {
    const bare = word.replace(/^\+|\*$/g, "").toLowerCase();
    const same = Object.hasOwn(SAME, bare) ? SAME[bare] : bare;
    if (/^[\w.@-]*[a-z][\w.@-]*$/.test(bare) && !SMALL.has(bare)) kept.push(`${same}^3 ${same}*`);
  }
  return kept.length ? kept.join(" ") : query;
}
