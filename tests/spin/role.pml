/*
 * Who takes a snapshot (snapshot.c: "who may"): one word says who and when he was last heard of. Whoever is not heard
 * of for long is replaced, and so is who died; a backup keeps the role while it lives, and takes a snapshot meanwhile,
 * which says every now and then that it is there.
 * What must hold: nobody is replaced who was heard of lately; who keeps the role and lives is not replaced at all.
 *   BAD_TWO  id and time are two words: whoever wants the role writes his time, then tries to get it
 *   BAD_SAY  who says that he is there does not look whether he keeps the role
 */
#define T 5     /* when time ends */
#define LATE 1
#define KEPT 9  /* in the future, always */
#define M 4     /* 0 is nobody */
byte id, at;    /* one word */
byte now=1, deaths;
bit dead[M];
bit kept[M];    /* ghosts */
byte heard[M];

#define MAYDIE if :: atomic { deaths<1 -> deaths++; dead[me]=1; goto killed } :: skip fi
#define FREE(w,t) ((w)==0 || dead[w] || (now>(t) && now-(t)>LATE))
#define JUDGE(w) if :: (w)!=0 && !dead[w] -> assert(!kept[w] && now-heard[w]>LATE) :: else fi

proctype taker(byte me; byte tries; bit keeps) {
  byte w, t, n; bit got;
  do
  :: n<tries -> n++;
#ifdef BAD_TWO
     w=id; t=at;
#else
     atomic { w=id; t=at };
#endif
     if
     :: FREE(w,t) ->
#ifdef BAD_TWO
        at=now;
        atomic { if :: id==w -> JUDGE(w); id=me; heard[me]=now; got=1 :: else fi }
#else
        atomic { if :: id==w && at==t -> JUDGE(w); id=me; at=now; heard[me]=now; got=1 :: else fi }
#endif
     :: else
     fi;                                                                   /* snapshot.entered */
     MAYDIE;
     if
     :: got ->
        if :: keeps -> atomic { if :: id==me -> at=KEPT; kept[me]=1 :: else fi } :: else fi;   /* rf_snapshotter_keep */
        MAYDIE;
#ifdef BAD_TWO
        atomic { heard[me]=now; at=now };                                  /* rest */
#else
#ifdef BAD_SAY
        atomic { if :: id==me -> heard[me]=now; at=now :: else fi };
#else
        atomic { if :: id==me && at!=KEPT -> heard[me]=now; at=now :: else fi };
#endif
#endif
        MAYDIE;                                                            /* snapshot.durable: not published if another has the role */
        atomic { kept[me]=0; if :: id==me -> id=0; at=0 :: else fi };      /* snapshot.left */
        got=0
     :: else
     fi
  :: else -> break
  od;
killed: atomic { w=0; t=0; got=0; n=0 }
}
proctype clock() { do :: now<T -> now++ :: break od }
init { atomic { run taker(1,2,0); run taker(2,1,1); run taker(3,1,0); run clock() } }
