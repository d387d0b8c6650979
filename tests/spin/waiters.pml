/*
 * The two levels of a run's waiter bits (claim.c): a word of members that sleep, a summary bit over it.
 * Whoever clears the summary looks at the word again.
 *   BAD_NOREREAD  it does not: somebody sleeps whom nobody counts
 */
byte w=1; bit sum=1;
proctype unlist() {
  w = w & 6;                               /* claim.unlisted */
  if
  :: w==0 -> sum=0;                        /* claim.unsummed */
#ifndef BAD_NOREREAD
     if :: w!=0 -> sum=1 :: else fi
#endif
  :: else
  fi
}
proctype list(byte bit_) { w = w | bit_; sum = 1 }   /* claim.listed, claim.summed */
proctype comes_and_goes() {
  w = w | 4; sum = 1;
  w = w & 3;
  if :: w==0 -> sum=0;
#ifndef BAD_NOREREAD
     if :: w!=0 -> sum=1 :: else fi
#endif
  :: else fi
}
init { atomic { run unlist(); run list(2); run comes_and_goes() }; (_nr_pr==1); assert(w==0 || sum) }
