// The search puts the page of questions first, where it has all the words: the other values are Sphinx's own.
var Scorer = {
  score: ([page, , , , score]) => score + (page === "questions" ? 15 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
