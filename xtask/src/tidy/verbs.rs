//! Lists the verbs by which `prose` recognises a sentence, in English as these pages use it.
//!
//! Nouns that are verbs as well ("read", "cost") are in it: a fragment with one of them passes, and
//! no sentence is refused for want of one. Whoever writes a verb that is not here adds it.

/// Auxiliaries, and forms that no ending makes.
pub const FORMS: &str = "\
is are was were be been being am isn't aren't wasn't weren't has have had hasn't haven't hadn't
do does did don't doesn't didn't can could may might must shall should will would cannot can't
won't it's there's that's took taken went gone came said saw seen knew known gave given kept held
made found told left lost sent spent built bound brought bought began begun became broke broken
chose chosen drew drawn drove fell felt fed fought flew forgot froze got grew grown heard hid
hidden laid led lent let lay lain meant met paid put ran read rose sat set shook shown slept sold
sought spoke spun stood stole struck stuck swept swam taught thought threw understood woke won
wore wrote written cut cost hit shut split spread hurt lit dealt dug bore borne beat withdrew
shrank lies dies ties";

/// Verbs in their base form, which may end in -s, -es, -ed or their like.
pub const VERBS: &str = "\
accept accompany acknowledge add admit age agree aim allocate allow alternate answer apologise
appear append apply approach argue arrange arrive ask assert assign assume attach authenticate
avoid await balance bear beat become begin behave believe belong bind block borrow bounce bound
break bring build buy calculate call cancel carry catch cause change charge check choose cite
claim clear click close collect combine come commit compact compare compete complete compute
confine confirm connect consume contain contend continue convert cool copy correspond cost count
cover crash create cross cure cut damage date deal decide declare decrypt define delay delete
deliver demand deny depart depend describe deserve detach determine differ differentiate dig
disagree discard dispatch disturb divide dominate double draft drain draw drift drive drop
duplicate earn echo elect embed emit empty enable encrypt end enforce enter equal establish
estimate evict exceed exchange execute exist exit expand expect expire explain export expose
extend fade fail fall feed fetch fill find finish fit fix flatter flip float flow flush focus
fold follow forbid force forget format forward found free freeze fulfil gain gather generate get
give glance go govern grant grow guarantee guard guess halt hand handle happen hash hear help
hide hit hold honour host hurt identify ignore implement import improve include increase infer
inform inherit insert inspect install intend interpret interrupt introduce invalidate invent
isolate issue join judge jump justify keep kick kill know label lack lag land last launch lay
lead leak learn leave lend let lie lift like limit link list listen live load locate lock log
look lose lower make manage map mark mask matter mean measure meet mention merge migrate mind
mirror misbehave miss mix model mount move multiply mute name narrow need negotiate normalise
note notice notify obey observe occupy occur offer omit open operate oppose order originate
outlive outrun outweigh overflow overtake overwrite owe own pack pad paint pair parade parse pass
pause pay penalise perform persist pick pin plan plant play plot point poll post prefer prepare
press pretend prevent print probe proceed produce profile promise propagate protect prove provide
prune publish pull punish purge push put quantify quit quote raise rank rate reach react read
realise rebalance rebuild receive reckon recognise recommend reconnect record recover redirect
reduce refer refill refresh refuse register reject relate release reload rely remain remember
remind remove rename render reopen reorder repair repeat replace replay reply report represent
request require resemble resend reserve reset reside resist resolve respond rest restart restore
resume retain retire retry return reuse reverse rewrite ring rise roll rotate round route run
sample saturate save say scale scan schedule scrub seal search secure see seem select send
separate serve set settle share shift ship shorten show shrink sign signal simulate sink sit skip
sleep slice slip slow smooth solve sort spare speak specify spend spin split spoil spread stall
stamp stand start state stay steal steer step stick stop store strand stray stream stretch submit
succeed suffer suffice suit support suppose surface survive suspend swallow sweep switch
symbolise synchronise tag tail take teach tear tell tend terminate test think throw tie tolerate
top toss total touch trace track transfer transform translate transmit travel treat trigger trim
truncate trust try tune turn twist understand undo unify unlink unlock unmap unpack unwind update
upset urge use validate vanish vary verify visit vote vouch wait wake walk want warn waste watch
wear weigh widen win wipe wire withdraw wonder work wrap write yank yield zero";

/// Forms of the third person that no noun looks like: a sentence that begins so has no subject.
pub const LONELY: &str = "\
asks becomes begins belongs chooses comes decides departs executes finds gives goes has holds
keeps knows leaves lets lies makes picks puts says sends serves speaks stays takes tells";
