// The words and turns of phrase that plain technical English does without. Two lists: `BANNED` has those that no file may hold,
// `OBLIQUE` those that are counted, because now and then one of them is the right word. A page of good technical prose has about one
// in ten thousand words. Add to the lists; take nothing from them.

export interface Phrase {
  /** How the phrase is named where it is found. */
  name: string;
  /** In one passage; case is ignored. */
  pattern: RegExp;
  instead: string;
}

const BE = '(?:is|are|was|were|be|been|being)';
/** Where a sentence, or a clause behind a colon or semicolon, begins. */
const START = '(?<=^|[.!?;:] )';
/** Verbs in the form that follows "has the server". */
const VERBS =
  'keep|send|read|write|wait|ask|make|take|give|do|know|look|run|close|open|hold|count|work|repeat|start|stop|store|serve|answer|load|come|go|decide|pass|try|drop|build|allocate|compute|encode|copy|end|fail|forget|remember|see|show|judge|find|leave';

/** What can be made to do something. */
const ACTORS =
  'server|client|session|shard|store|kernel|engine|operator|provider|others?|them|it|peer|browser|loop|front|tab|system|node|thread|database|app|page|test|owner|user|connection';

const phrase = (name: string, pattern: string, instead: string, flags = 'giu'): Phrase => {
  return { name, pattern: new RegExp(pattern, flags), instead };
};

/** Words that no file may hold. */
export const BANNED: Phrase[] = [
  phrase('somebody', '\\b(?:some|any|every)body\\b', 'name the actor: client, session, user, operator'),
  phrase('nobody', '\\bnobody\\b', 'name the actor: "no session", "no client"'),
  phrase('no one', '\\bno one\\b(?! of)', 'name the actor: "no session", "no client"'),
  phrase('anyone', '\\b(?:any|some|every)one\\b', 'name the actor: "any user", "every client"'),
  phrase('whoever', '\\bwh(?:o|om)ever\\b', 'name the actor: "a client that"'),
  phrase('whom', '\\bwhom\\b', 'name the actor and make it the subject'),
  phrase('so many', '(?<!\\b(?:not|with) )\\bso (?:many|much|often)\\b(?! that)', 'the number, or "this many"'),
  phrase('is told', `\\b${BE}(?: not| then| also| only)? told\\b`, 'make the sender the subject: "the server sends", "receives"'),
  phrase('beside', '\\bbeside\\b', '"next to", "in addition to", "with"'),
  phrase('lies in', '\\b(?:lies|lie|lay|lying) (?:in|on|at|beside|under|behind|with|there)\\b', '"is in", "is stored in"'),
  phrase('any more', '\\bany more(?=[.,;:!?)]|$| (?:and|or|but|when|if|because|by|in|on|at|to|for|from|after|once|since|who|which|where|is|are)\\b)', '"no longer"'),
  phrase('that there is not', '\\bthat there (?:is|are|was|were) not?\\b(?! \\w)', '"unknown", "missing", "does not exist"'),
  phrase('What is ... as a subject', `${START}what (?:is|was|are|were|has|had|a|an|the|one|its?|they|stands?|comes?|came|waits?|becomes?|became|lies)\\b(?![^.]*\\?)`, 'the noun that "what" stands for'),
  phrase('Who has ... as a subject', `${START}who(?:se)?\\b(?![^.]*\\?)`, 'the actor: "a client that has"'),
  phrase('it is not known who', '\\bnot known (?:who|what|whether)\\b', 'the actor: "the server does not know"'),
];

/** Turns of phrase that are counted. */
export const OBLIQUE: Phrase[] = [
  phrase('what is ... as an object', '(?<=[\\w,›] )what (?:is|was|were|are|stands?|waits?|becomes?|became|comes?|came|goes|went|lies|there) (?!the\\b|an?\\b)', 'the noun that "what" stands for'),
  phrase('and what', '\\b(?:and|or|with|than|but|of all) what\\b', 'the noun that "what" stands for'),
  phrase('who without a noun', '\\b(?:of|by|to|for|from|and|or|with|at|but|also|say|says|knows?|sees?|what|than) who\\b', 'the actor: "the client that"'),
  phrase('has the server keep', `\\b(?:has|have|had|having) (?:(?:the|an?|its|their|each|every|all) )?(?:${ACTORS}) (?:${VERBS})\\b`, 'the actor that does it as the subject'),
  phrase('of its own', '\\bof (?:its|their|his|one’s|our|your) own\\b', '"its own", "a separate", "dedicated"'),
  phrase('is none', `\\b(?:${BE}|there (?:is|are|was|were)) none\\b`, '"does not exist", "is not a valid ..."', 'gu'),
  phrase('is no ...', `(?<!\\bthere )\\b(?:is|are|was|were) no (?!longer|more|less|such|later|earlier|larger|smaller|greater|better|match)`, '"is not a"'),
  phrase('is over', `\\b(?:is|are|was|were) over(?=[.,;:)]|$| (?:and|before|when|the|it|by)\\b)`, '"has ended", "has expired"'),
  phrase('nothing of', '\\bnothing of\\b', '"none of", or a verb with "not"'),
  phrase('stands', '(?<!-)\\b(?:stands?|stood|standing)\\b(?!-ins?\\b| in for\\b| (?:alone|out)\\b)', '"is", "contains", "represents"'),
  phrase('goes on', '\\b(?:goes|go|went|going|gone) on\\b', '"continues", "happens"'),
  phrase('anew', '\\banew\\b', '"again"'),
  phrase('says so', '\\b(?:says?|said|saying) (?:so|what|which|of|nothing)\\b', 'what the program does: "reports", "logs", "returns"'),
  phrase('is asked', `\\b${BE} asked\\b`, 'make the one that asks the subject'),
  phrase('judges', '\\bjudg(?:e|es|ed|ing)\\b', '"authorizes", "evaluates"'),
  phrase('let in', '\\b(?:lets?|letting) (?:(?:it|them|him|her|a \\w+|the \\w+) )?in\\b', '"accepts", "admits"'),
  phrase('told apart', '\\b(?:tells?|told|telling) (?:\\w+ )?(?:apart|of)\\b', '"distinguish", "receives"'),
  phrase('meanwhile', '\\bmeanwhile\\b', '"in the meantime", or the event in between'),
  phrase('under way', '\\bunder way\\b', '"in progress", "pending", "in flight"'),
  phrase('left out', '\\b(?:leave|leaves|left|leaving) (?:it |them )?out\\b', '"skips", "omits", "excluded"'),
  phrase('from now on', '\\bfrom (?:now|then) on\\b', '"afterwards", or the event'),
  phrase('has come', '\\b(?:has|have|had) come\\b', '"has arrived"'),
  phrase('is meant', `\\b${BE} meant\\b(?! to)`, '"applies to"'),
  phrase('looked at', `\\b${BE} (?:looked (?:at|for|after)|waited for|spoken of)\\b`, 'an active verb with its actor'),
  phrase('one after the other', '\\b(?:one after the other|again and again|once and for all)\\b', '"in order", "repeatedly"'),
  phrase('those of', '(?<!, )\\bthose of\\b', 'the noun'),
  phrase('mend', '\\bmend(?:s|ed|ing)?\\b', '"fix", "repair"'),
  phrase('wants', '\\b(?:wants?|wish(?:es|ed)?) (?:to be|nothing|no)\\b', '"requests", "requires"'),
];
