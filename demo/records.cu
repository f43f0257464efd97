// An inventory of records that is updated by transactions: the same few fields of the same record, again and again, by
// address arithmetic on a struct of odd size.
struct Item { int stock; int reserved; double price; float discount; int category; int history[5]; };
struct Order { int item; int amount; int kind; float rebate; };

extern "C" __global__ void settle(Item *items, const Order *orders, double *revenue, int orders_used, int rounds)
{
    const int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= orders_used)
        return;
    double earned = 0.0;
    for (int r = 0; r < rounds; ++r) {
        const int item = orders[o].item + r;
        if (orders[o].kind == 0) {
            items[item].stock -= orders[o].amount;
            items[item].history[r % 5] = orders[o].amount;
            earned += items[item].price * orders[o].amount * (1.0 - items[item].discount);
        } else if (orders[o].kind == 1) {
            items[item].reserved += orders[o].amount;
            items[item].history[r % 5] = -orders[o].amount;
        } else {
            items[item].stock += orders[o].amount;
            earned -= items[item].price * orders[o].amount / (1.0 + orders[o].rebate);
        }
        if (items[item].stock < items[item].reserved)
            items[item].category = -1;
    }
    revenue[o] = earned;
}
