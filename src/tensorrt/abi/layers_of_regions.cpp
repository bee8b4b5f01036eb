#include "tensorrt/abi/layer_tables.h"

namespace opwright::tensorrt {

const Table loop_boundary_layer_table = {"VLoopBoundaryLayer",
                                         {
                                             OPWRIGHT_SAME(ILoopBoundaryLayer, getLoop),
                                         }};

const Table recurrence_layer_table = {"VRecurrenceLayer", {}};

const Table loop_output_layer_table = {"VLoopOutputLayer",
                                       {
                                           OPWRIGHT_SAME(ILoopOutputLayer, getLoopOutput),
                                           OPWRIGHT_PROPERTY(ILoopOutputLayer, Axis),
                                       }};

const Table trip_limit_layer_table = {"VTripLimitLayer",
                                      {
                                          OPWRIGHT_SAME(ITripLimitLayer, getTripLimit),
                                      }};

const Table iterator_layer_table = {"VIteratorLayer",
                                    {
                                        OPWRIGHT_PROPERTY(IIteratorLayer, Axis),
                                        OPWRIGHT_PROPERTY(IIteratorLayer, Reverse),
                                    }};

const Table loop_table = {"VLoop",
                          {
                              OPWRIGHT_SAME(ILoop, addRecurrence),
                              OPWRIGHT_SAME(ILoop, addTripLimit),
                              OPWRIGHT_SAME(ILoop, addIterator),
                              OPWRIGHT_SAME(ILoop, addLoopOutput),
                              OPWRIGHT_PROPERTY(ILoop, Name),
                          }};

const Table conditional_boundary_layer_table = {
    "VConditionalBoundaryLayer",
    {
        OPWRIGHT_SAME(IIfConditionalBoundaryLayer, getConditional),
    }};

const Table condition_layer_table = {"VConditionLayer", {}};

const Table conditional_input_layer_table = {"VConditionalInputLayer", {}};

const Table conditional_output_layer_table = {"VConditionalOutputLayer", {}};

const Table if_conditional_table = {"VIfConditional",
                                    {
                                        OPWRIGHT_SAME(IIfConditional, setCondition),
                                        OPWRIGHT_SAME(IIfConditional, addInput),
                                        OPWRIGHT_SAME(IIfConditional, addOutput),
                                        OPWRIGHT_PROPERTY(IIfConditional, Name),
                                    }};

}  // namespace opwright::tensorrt
