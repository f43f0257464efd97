"""Scalar replacement by question propagation (SRQP, ESRQP, SSRQP).

    query      questions, access_index, kills          what accesses a kernel has, and what may change their bytes
               address_translation, reuse_candidates   the names of an address at other points
               block_answers, question_propagation     on which paths bytes are available
               availability_solver                     on which edges a load is missing
               queries                                 all of these, with anticipation, for one version of a kernel
    decision   insertion_rules                         where a load may be inserted
               redundancy, speculation, early_issue    what is done about one load
               path_costs                              which insertions would make a path execute more loads
               decisions                               the records that the decisions are made of
    rewrite    register_chains, value_copies           the registers, copies and loads that carry the decisions out
               reports                                 remarks

`round` runs these three steps once, `passes` repeats rounds.
"""
