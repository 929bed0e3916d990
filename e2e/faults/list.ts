// The faults that patches plant in the product, each with the test that must fail because of it. `patches/NAME.patch` changes the copy of
// the tree that `tree.ts` makes. `patches/planted-fault.patch` adds the function by which a process has only the fault that the variable
// PLANTED_FAULT names, so that one build has them all.

/** A test program: the test target of a package, or with `lib` the unit tests of the package. */
export interface Program {
  package: string;
  target: string;
  /** The name of the test with its modules. */
  test: string;
}

export interface Fault {
  /** The name in `is_planted` and in PLANTED_FAULT. */
  name: string;
  /** The file in `patches`, without its ending. */
  patch: string;
  foundBy: Program;
  /** The fuzz target that finds the fault as well. */
  fuzzTarget?: string;
  /** The server without which the test can't run. */
  needs?: 'mongodb';
}

const CODEC: Program = { package: 'tidewire-wire', target: 'codec', test: 'mutation::mutations_of_the_corpus_find_nothing' };
const ENTRIES: Program = { package: 'tidewire-wire', target: 'entries', test: 'corpus::mutations_of_the_corpus_find_nothing' };
const JSON_TEXT: Program = { package: 'tidewire-json', target: 'json_corpus', test: 'mutations_of_the_corpus_find_nothing' };
const PLACEHOLDERS: Program = { package: 'tidewire-json', target: 'lib', test: 'placeholder::tests::the_scan_finds_all_placeholders' };
const POLLING: Program = { package: 'tidewire-wire', target: 'lib', test: 'protocol::socketio::polling::tests::a_body_is_split_at_its_separators' };
const exchanges = (test: string): Program => ({ package: 'tidewire-server', target: 'exchanges', test });
const SWITCHES = exchanges('a_change_of_the_transport_loses_doubles_and_reorders_nothing');
const behaviour = (test: string): Program => ({ package: 'tidewire-core', target: 'behaviour', test });
const backends = (test: string): Program => behaviour(`backends::${test}`);
const backendNodes = (test: string): Program => behaviour(`backend_nodes::${test}`);
const heartbeat = (test: string): Program => ({ package: 'tidewire-core', target: 'lib', test: `session::heartbeat::tests::${test}` });
const RULES: Program = { package: 'tidewire-rules', target: 'corpus', test: 'mutations_of_the_corpus_find_nothing' };
const SIMULATION: Program = { package: 'tidewire-core', target: 'sim', test: 'every_seed_keeps_every_promise' };
const HISTORY: Program = { package: 'tidewire-core', target: 'resume', test: 'every_seed_keeps_every_promise' };
const PATTERNS: Program = { package: 'tidewire-core', target: 'event_patterns', test: 'every_seed_keeps_every_promise' };
const liveQueries = (test: string): Program => behaviour(`live_queries::${test}`);
const LIVE_RESULTS = liveQueries('live_results_equal_full_evaluations');
const INDEX_READS = behaviour('index_reads::equal_sort_values_are_ordered_by_id_in_both_directions');
const WINDOWS: Program = { package: 'tidewire-query', target: 'window', test: 'every_window_equals_a_full_evaluation' };
const LOST: Program = { package: 'tidewire-core', target: 'lost', test: 'every_seed_keeps_every_promise' };
const VIEWS: Program = { package: 'tidewire-shard', target: 'view_change', test: 'every_seed_keeps_every_promise' };
const LINKS: Program = { package: 'tidewire-link', target: 'simulation', test: 'every_seed_keeps_every_promise' };
const FRAMES: Program = { package: 'tidewire-link', target: 'frames', test: 'corpus::mutations_of_the_corpus_find_nothing' };
const CARRIER: Program = { package: 'tidewire-cluster', target: 'links', test: 'bus::redis' };
const MEMBERSHIP: Program = { package: 'tidewire-membership', target: 'membership', test: 'every_seed_keeps_every_promise' };
const SQLITE: Program = { package: 'tidewire-store', target: 'lib', test: 'sqlite::reopened::commits_after_a_failed_sync_survive_a_power_cut' };
const INDEXES: Program = { package: 'tidewire-store', target: 'store', test: 'sqlite_indexes::entries_equal_a_rebuild_after_random_writes_and_kills' };
const MONGODB: Program = { package: 'tidewire-store', target: 'remote_stores', test: 'mongodb::an_abandoned_batch_is_never_written' };
const parser = (name: string): Program => ({ package: 'tidewire-server', target: 'fuzz', test: `${name}_mutations_find_nothing` });
const JWT = parser('jwt');
const API = parser('api');
const PATCH = parser('json_patch');
const CONFIG = parser('config');
const ADDRESS = parser('client_address');

export const FAULTS: Fault[] = [
  { name: 'wire-length', patch: 'wire-bytes', foundBy: CODEC, fuzzTarget: 'decode' },
  { name: 'wire-allocation', patch: 'wire-bytes', foundBy: CODEC, fuzzTarget: 'decode' },
  { name: 'wire-slice', patch: 'wire-slice', foundBy: CODEC, fuzzTarget: 'decode' },
  { name: 'wire-inflate', patch: 'wire-inflate', foundBy: CODEC, fuzzTarget: 'decode' },
  { name: 'wire-escape', patch: 'wire-escape', foundBy: CODEC, fuzzTarget: 'decode' },
  { name: 'entries-split', patch: 'entries-split', foundBy: ENTRIES, fuzzTarget: 'entries' },
  { name: 'json-zero', patch: 'json-zero', foundBy: JSON_TEXT, fuzzTarget: 'json' },
  { name: 'placeholder-key', patch: 'placeholder-key', foundBy: PLACEHOLDERS },
  { name: 'polling-binary', patch: 'exchanges', foundBy: POLLING },
  { name: 'exchange-answer', patch: 'exchanges', foundBy: exchanges('an_answer_waits_until_the_last_one_has_left') },
  { name: 'exchange-gone', patch: 'exchanges', foundBy: exchanges('a_request_that_is_dropped_ends_its_session') },
  { name: 'exchange-output', patch: 'exchanges', foundBy: SWITCHES },
  { name: 'exchange-unread', patch: 'exchanges', foundBy: SWITCHES },
  { name: 'heartbeat-last', patch: 'heartbeat', foundBy: heartbeat('the_lists_equal_a_table') },
  { name: 'heartbeat-heard', patch: 'heartbeat', foundBy: heartbeat('an_answer_begins_the_next_interval_and_another_message_does_not') },
  { name: 'heartbeat-late', patch: 'heartbeat', foundBy: heartbeat('a_shard_that_was_stopped_reads_the_answers_first') },
  { name: 'backend-again', patch: 'backends', foundBy: backends('an_event_that_a_lost_backend_was_sent_is_not_sent_again') },
  { name: 'backend-credit', patch: 'backends', foundBy: backends('a_slow_backend_stops_only_its_own_sessions') },
  { name: 'backend-foreign', patch: 'backends', foundBy: backends('commands_that_can_not_be_executed_have_no_effect') },
  { name: 'hand-over-early', patch: 'backends', foundBy: behaviour('hand_overs::a_released_session_continues_at_the_next_backend_with_all_events') },
  { name: 'ask-foreign', patch: 'backends', foundBy: behaviour('asks::only_the_sessions_of_an_ask_answer_it_and_only_once') },
  { name: 'ask-limit', patch: 'backends', foundBy: behaviour('asks::answers_that_a_backend_does_not_confirm_are_limited') },
  { name: 'tell-sender', patch: 'backends', foundBy: behaviour('tells::a_backend_gets_the_replies_of_the_others_that_serve_the_namespace') },
  { name: 'backend-closed', patch: 'backends', foundBy: backendNodes('a_session_whose_node_is_lost_ends_at_its_backend') },
  { name: 'backend-asks', patch: 'backends', foundBy: backendNodes('an_ask_ends_with_the_answers_of_the_nodes_that_are_left') },
  { name: 'backend-introduced', patch: 'backends', foundBy: backendNodes('a_node_that_is_linked_later_learns_which_backends_there_are') },
  { name: 'backend-reserved', patch: 'backends', foundBy: backendNodes('a_backend_keeps_its_sessions_and_their_messages_through_the_loss_of_its_node') },
  { name: 'backend-received', patch: 'backends', foundBy: backendNodes('a_backend_keeps_its_sessions_and_their_messages_through_the_loss_of_its_node') },
  { name: 'rules-first-key', patch: 'rules-first-key', foundBy: RULES, fuzzTarget: 'rules' },
  { name: 'jwt-signature', patch: 'jwt-signature', foundBy: JWT, fuzzTarget: 'jwt' },
  { name: 'jwt-expiry', patch: 'jwt-expiry', foundBy: JWT, fuzzTarget: 'jwt' },
  { name: 'api-escape', patch: 'api-escape', foundBy: API, fuzzTarget: 'api' },
  { name: 'api-property', patch: 'api-property', foundBy: API, fuzzTarget: 'api' },
  { name: 'patch-index', patch: 'patch-index', foundBy: PATCH, fuzzTarget: 'json_patch' },
  { name: 'patch-pointer', patch: 'patch-pointer', foundBy: PATCH, fuzzTarget: 'json_patch' },
  { name: 'patch-nesting', patch: 'patch-nesting', foundBy: PATCH, fuzzTarget: 'json_patch' },
  { name: 'config-place', patch: 'config-place', foundBy: CONFIG, fuzzTarget: 'config' },
  { name: 'proxy-length', patch: 'proxy-length', foundBy: ADDRESS, fuzzTarget: 'client_address' },
  { name: 'forwarded-trust', patch: 'forwarded-trust', foundBy: ADDRESS, fuzzTarget: 'client_address' },
  { name: 'record-dirty', patch: 'record-eviction', foundBy: SIMULATION },
  { name: 'record-tombstone', patch: 'record-eviction', foundBy: SIMULATION },
  { name: 'record-route', patch: 'record-route', foundBy: SIMULATION },
  { name: 'record-version', patch: 'record-version', foundBy: SIMULATION },
  { name: 'history-deposed', patch: 'history-deposed', foundBy: HISTORY },
  { name: 'pattern-visible', patch: 'event-pattern', foundBy: PATTERNS },
  { name: 'pattern-members', patch: 'event-pattern', foundBy: PATTERNS },
  { name: 'pattern-rules', patch: 'event-pattern', foundBy: PATTERNS },
  { name: 'query-delete', patch: 'live-queries', foundBy: WINDOWS },
  { name: 'query-lag', patch: 'live-queries', foundBy: liveQueries('a_lagging_session_gets_the_whole_result_later') },
  { name: 'query-leave', patch: 'live-queries', foundBy: LIVE_RESULTS },
  { name: 'query-projection', patch: 'live-queries', foundBy: LIVE_RESULTS },
  { name: 'query-refill', patch: 'live-queries', foundBy: WINDOWS },
  { name: 'query-right', patch: 'live-queries', foundBy: liveQueries('a_forbidden_record_causes_no_message') },
  { name: 'query-tie', patch: 'live-queries', foundBy: WINDOWS },
  { name: 'query-written', patch: 'live-queries', foundBy: LIVE_RESULTS },
  { name: 'membership-answer-time', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-answers', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-broker', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-epoch', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-evicted', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-generation', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-half', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-joining', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-leaving', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-minority', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-pause', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-stale-view', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-stop', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'membership-wait', patch: 'membership', foundBy: MEMBERSHIP },
  { name: 'interest-census', patch: 'interest-nodes', foundBy: VIEWS },
  { name: 'interest-patterns', patch: 'interest-nodes', foundBy: VIEWS },
  { name: 'interest-unconfirmed', patch: 'interest-nodes', foundBy: VIEWS },
  { name: 'ended-requestor', patch: 'ended-requestor', foundBy: LOST },
  { name: 'lost-barrier', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-call', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-deferred', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-deferred-later', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-delete', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-event-right', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-event-wanted', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-fetch', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-gather', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-head', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-history', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-history-owner', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-history-read', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-job', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-lagging', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-listen-owner', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-member', patch: 'lost-node', foundBy: { ...VIEWS, test: 'a_change_of_rights_waits_for_a_view_without_a_lost_node' } },
  { name: 'lost-notify', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-permission', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-presence', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-presence-query', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-proceed', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-rate', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-read', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-reauthorize', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-record-owner', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-record-rule', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-right', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-rpc-owner', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-subscribe', patch: 'lost-node', foundBy: LOST },
  { name: 'lost-write', patch: 'lost-node', foundBy: LOST },
  { name: 'rights-greeting', patch: 'rights-nodes', foundBy: VIEWS },
  { name: 'rights-sent', patch: 'rights-nodes', foundBy: VIEWS },
  { name: 'rights-view', patch: 'rights-nodes', foundBy: VIEWS },
  { name: 'rules-losers', patch: 'rights-nodes', foundBy: VIEWS },
  { name: 'rules-owner', patch: 'rights-nodes', foundBy: VIEWS },
  { name: 'rules-settled', patch: 'rights-nodes', foundBy: VIEWS },
  { name: 'rules-undecided', patch: 'rights-nodes', foundBy: { ...VIEWS, test: 'a_change_of_rules_waits_for_the_next_owner_of_a_record' } },
  { name: 'view-check', patch: 'view-change', foundBy: { ...VIEWS, test: 'a_check_of_new_rules_passes_to_the_next_owner' } },
  { name: 'view-closed-early', patch: 'view-change', foundBy: VIEWS },
  { name: 'view-dirty', patch: 'view-change', foundBy: VIEWS },
  { name: 'transaction-condition', patch: 'transaction-condition', foundBy: VIEWS },
  { name: 'live-deferral', patch: 'live-views', foundBy: VIEWS },
  { name: 'live-join', patch: 'live-views', foundBy: VIEWS },
  { name: 'live-lost-owner', patch: 'live-views', foundBy: VIEWS },
  { name: 'view-deposed', patch: 'live-views', foundBy: VIEWS },
  { name: 'view-queued', patch: 'live-views', foundBy: VIEWS },
  { name: 'view-lost-forgotten', patch: 'view-change', foundBy: VIEWS },
  { name: 'view-positions', patch: 'view-change', foundBy: VIEWS },
  { name: 'view-providers', patch: 'view-change', foundBy: VIEWS },
  { name: 'view-request-forgotten', patch: 'view-change', foundBy: VIEWS },
  { name: 'view-served-early', patch: 'view-change', foundBy: VIEWS },
  { name: 'view-subscriptions', patch: 'view-change', foundBy: VIEWS },
  { name: 'view-users', patch: 'view-change', foundBy: VIEWS },
  { name: 'link-frame-number', patch: 'link', foundBy: FRAMES, fuzzTarget: 'links' },
  { name: 'link-frame-range', patch: 'link', foundBy: FRAMES, fuzzTarget: 'links' },
  { name: 'link-acknowledged', patch: 'link', foundBy: LINKS },
  { name: 'link-answer', patch: 'link', foundBy: LINKS },
  { name: 'link-birth', patch: 'link', foundBy: LINKS },
  { name: 'link-bound', patch: 'link', foundBy: LINKS },
  { name: 'link-freed', patch: 'link', foundBy: LINKS },
  { name: 'link-merged', patch: 'link', foundBy: LINKS },
  { name: 'link-order', patch: 'link', foundBy: LINKS },
  { name: 'link-repeated', patch: 'link', foundBy: LINKS },
  { name: 'link-request', patch: 'link', foundBy: LINKS },
  { name: 'link-resumed', patch: 'link', foundBy: LINKS },
  { name: 'link-silence', patch: 'link', foundBy: LINKS },
  { name: 'link-skipped', patch: 'link', foundBy: LINKS },
  { name: 'link-start', patch: 'link', foundBy: LINKS },
  { name: 'carrier-birth', patch: 'carrier', foundBy: CARRIER },
  { name: 'carrier-check', patch: 'carrier', foundBy: CARRIER },
  { name: 'carrier-down', patch: 'carrier', foundBy: CARRIER },
  { name: 'carrier-inbox', patch: 'carrier', foundBy: CARRIER },
  { name: 'carrier-subscription', patch: 'carrier', foundBy: CARRIER },
  { name: 'sqlite-reopened', patch: 'sqlite-reopened', foundBy: SQLITE },
  { name: 'index-build', patch: 'indexes', foundBy: INDEXES },
  { name: 'index-deleted', patch: 'indexes', foundBy: INDEXES },
  { name: 'index-stop', patch: 'indexes', foundBy: INDEX_READS },
  { name: 'mongodb-fence', patch: 'mongodb-fence', foundBy: MONGODB, needs: 'mongodb' },
  { name: 'mongodb-takeover', patch: 'mongodb-takeover', foundBy: MONGODB, needs: 'mongodb' },
  { name: 'mongodb-making', patch: 'mongodb-making', foundBy: MONGODB, needs: 'mongodb' },
];
